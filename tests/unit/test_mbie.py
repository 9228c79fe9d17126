"""MBIE-EB: the model from rollouts worked by hand, its two tables, and that exploring pays."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config
from tests.unit.q_table import ACTIONS, STATES, crafted_rollout

GAMMA = 0.9


def agent_for(obs: Any = STATES, actions: Any = ACTIONS, **fields: Any) -> Any:
    algo: Any = algo_class("mbie")
    given = {"gamma": GAMMA, "n_envs": 1, "n_steps": 4, "n_sweeps": 10_000, "bonus": 0.0}
    config = algo.Config(env_id="x", algo_id="mbie", **{**given, **fields})
    return algo(config, obs, actions, seed=0)


def test_values_by_hand() -> None:
    """s1 -a0, 1-> s2 -a2, 2-> cut at s3; s0 -a1, 3-> s4. s3 and s4 are hardly known: what was never
    tried counts as the lowest reward for ever, here 0 as none was negative."""
    agent = agent_for()
    agent.update(crafted_rollout(), 0, 100)
    assert agent.q[1, 0] == pytest.approx(1 + GAMMA * 2)
    assert agent.q[2, 2] == pytest.approx(2), "a truncated episode goes on, from a state worth 0"
    assert agent.q[0, 1] == pytest.approx(3)
    assert agent.n.sum() == 3, "the reset row is not counted"
    assert agent.table.detach().numpy() == pytest.approx(agent.q)
    assert agent.policy.act(np.int64(1)) == 0


def test_an_end_is_worth_nothing_and_a_cut_what_follows() -> None:
    rollout: Any = crafted_rollout()
    rollout.obs[2, 0] = 1  # s1 -a0-> s2 -a2-> back to s1
    cut, ended = agent_for(), agent_for()
    cut.update(rollout, 0, 100)
    rollout.truncated[1], rollout.terminated[1] = False, True
    ended.update(rollout, 0, 100)
    assert ended.q[2, 2] == pytest.approx(2)
    assert cut.q[2, 2] == pytest.approx((2 + GAMMA * 1) / (1 - GAMMA**2), rel=1e-3)


def test_chances_are_frequencies() -> None:
    """Of three tries two led to s1, of which nothing is known, and one to s2, which pays 6."""
    rollout = Rollout.allocate(8, 1, STATES, DiscreteActions(ACTIONS))
    obs: Any = rollout.obs
    obs[:, 0] = [0, 1, 0, 1, 0, 2, 4, 0, 0]
    rollout.reward[5] = 6
    rollout.valid[[0, 2, 4, 5]] = True
    rollout.truncated[[0, 2]], rollout.terminated[5] = True, True
    agent = agent_for()
    agent.update(rollout, 0, 100)
    assert agent.q[0, 0] == pytest.approx(GAMMA * 6 / 3)


def test_the_bonus_and_what_was_never_tried() -> None:
    agent = agent_for(bonus=0.5, optimism=10.0)
    agent.update(crafted_rollout(), 0, 100)
    highest = 10 * 3 / (1 - GAMMA)
    table = agent.policy.optimistic
    assert table[3].tolist() == pytest.approx([highest] * 3)
    # The range of the rewards is 2; every pair was tried once.
    assert table[2, 2] == pytest.approx(2 + 0.5 * 2 + GAMMA * highest)
    twice = agent_for(bonus=0.5, optimism=10.0)
    for _ in range(2):
        twice.update(crafted_rollout(), 0, 100)
    assert twice.policy.optimistic[2, 2] == pytest.approx(2 + 0.5 * 2 / 2**0.5 + GAMMA * highest)
    assert twice.q[2, 2] == pytest.approx(2), "evaluations know no bonus"


@pytest.mark.parametrize(("reward", "best"), [(0.0, 10.0), (-1.0, 0.0), (0.5, 5.0)])
def test_the_highest_value_follows_the_largest_reward(reward: float, best: float) -> None:
    rollout = crafted_rollout()
    rollout.reward[:] = reward
    agent = agent_for(bonus=0.1)
    agent.update(rollout, 0, 100)
    assert agent.policy.optimistic[4, 0] == pytest.approx(best / (1 - GAMMA))
    assert agent.q[4, 0] == pytest.approx(min(reward, 0.0) / (1 - GAMMA))


def test_without_a_bonus_it_acts_by_what_it_knows() -> None:
    agent = agent_for(bonus={"start": 0.1, "end": 0.0, "to": 50})
    agent.update(crafted_rollout(), 0, 100)
    assert (agent.policy.optimistic != agent.q).any()
    agent.update(crafted_rollout(), 60, 100)
    assert (agent.policy.optimistic == agent.q).all()


def test_it_explores_by_one_table_and_is_evaluated_by_the_other() -> None:
    agent = agent_for(bonus=0.1)
    agent.update(crafted_rollout(), 0, 100)
    obs, first = np.full(200, 1), np.zeros(200, bool)
    assert set(agent.policy.greedy(obs, {}, first).actions) == {0}
    drawn = agent.policy.sample(obs, {}, first).actions
    assert set(drawn) == {1, 2}, "what was never tried in s1, at random"
    mask = np.tile([True, False, True], (200, 1))
    assert set(agent.policy.sample(obs, {}, first, mask).actions) == {2}


def test_illegal_actions_have_no_part_in_the_value_of_a_state() -> None:
    rollout = crafted_rollout()
    rollout.mask = np.ones((5, 1, 3), bool)
    rollout.mask[1] = [True, True, False]  # a2 in s2, which pays 2
    rollout.mask[4] = False  # an end may have no legal action
    agent = agent_for()
    agent.update(rollout, 0, 100)
    assert agent.q[1, 0] == pytest.approx(1)
    assert np.isfinite(agent.q).all()


def test_numbers_need_not_start_at_0() -> None:
    agent, plain = agent_for(spaces.Discrete(5, start=-2)), agent_for()
    rollout: Any = crafted_rollout()
    plain.update(rollout, 0, 100)
    rollout.obs -= 2
    agent.update(rollout, 0, 100)
    assert (agent.q == plain.q).all()
    assert agent.policy.act(np.int64(-1)) == plain.policy.act(np.int64(1)) == 0


def test_its_state_is_all_it_has() -> None:
    agent, other = agent_for(bonus=0.1), agent_for(bonus=0.1)
    agent.update(crafted_rollout(), 0, 100)
    tensors, extra = copy.deepcopy(agent.state())
    other.load_state({k: {n: t.numpy() for n, t in v.items()} for k, v in tensors.items()}, extra)
    for made in (agent, other):
        made.update(crafted_rollout(), 4, 100)
    assert (agent.q == other.q).all()
    assert (agent.policy.optimistic == other.policy.optimistic).all()
    obs, first = np.arange(5), np.zeros(5, bool)
    both = [made.policy.sample(obs, {}, first).actions.tolist() for made in (agent, other)]
    assert both[0] == both[1]


def test_an_update_can_be_taken_back_and_its_tables_sent() -> None:
    agent, other = agent_for(bonus=0.1), agent_for(bonus=0.1)
    saved = agent.snapshot()
    agent.update(crafted_rollout(), 0, 100)
    other.import_flat(agent.export_flat())
    assert torch.equal(other.table, agent.table)
    assert (other.policy.optimistic == agent.policy.optimistic).all()
    agent.restore(saved)
    assert agent.n.sum() == 0
    assert not agent.table.any()


def test_what_it_cannot_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"one Discrete observation.*use dqn or ppo"):
        agent_for(spaces.Box(0, 1, (2,)))
    with pytest.raises(ConfigError, match="mbie needs Discrete actions"):
        agent_for(actions=spaces.MultiDiscrete([2, 2]))
    with pytest.raises(RunError, match="keep the spaces"):
        agent_for().load_weights(agent_for(spaces.Discrete(6)).net.state_dict())


def test_a_forged_model_is_refused() -> None:
    agent, other = agent_for(), agent_for()
    agent.update(crafted_rollout(), 0, 100)
    tensors, extra = agent.state()
    tensors["counts"]["moves"] = tensors["counts"]["moves"] + 1000
    with pytest.raises(RunError, match="not between states"):
        other.load_state(tensors, extra)
    assert other.n.sum() == 0


def test_it_finds_what_random_actions_do_not(tmp_path: Path) -> None:
    """One in 2,048 tries of random actions gets to the end of the chain, and turns back there."""
    fields = {"env_id": "benchmarks.auto_tasks:Chain-v0", "algo_id": "mbie", "max_env_steps": 4_000}
    run = loop.train(build_config({**fields, "n_envs": 4, "seed": 1}), runs_root=tmp_path)
    assert run.meta()["test"]["mean"] == 40.0
