"""SARSA: the next action is the one taken, or one drawn where none was; targets by hand."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import DiscreteActions
from tests.unit.q_table import ACTIONS, STATES, TABLE, batch_of, crafted_rollout, table_agent


def agent_for(**fields: Any) -> Any:
    return table_agent("sarsa", **fields)


def test_the_next_action_is_the_one_taken_or_a_draw_of_the_policy() -> None:
    agent = agent_for(exploration="greedy")
    actions = agent._next_actions(crafted_rollout())[:, 0]
    # Row 0: taken. Row 1, cut at s3: the policy's 1, not the 0 that the next row holds. Row 3, the
    # last: the policy's 2 at s4, not 0.
    assert actions[[0, 1, 3]].tolist() == [2, 1, 2]


def test_targets() -> None:
    batch = batch_of(agent_for(exploration="greedy"), crafted_rollout())
    # Q(s2, a2) = 5 although a1 is worth 8; Q(s3, a1) = 7; Q(s4, a2) = 20.
    assert batch.returns.tolist() == pytest.approx([1 + 0.9 * 5, 2 + 0.9 * 7, 3 + 0.9 * 20])
    assert batch.actions.tolist() == [0, 2, 1]
    assert batch.obs.tolist() == [1, 2, 0], "the reset row is not learnt from"


def test_a_terminated_episode_has_no_next_value() -> None:
    rollout = crafted_rollout()
    rollout.terminated[1], rollout.truncated[1] = True, False
    target = batch_of(agent_for(exploration="greedy"), rollout).returns.tolist()
    assert target == pytest.approx([5.5, 2, 21])


def test_with_lambda_the_later_rewards_count_too() -> None:
    target = batch_of(agent_for(exploration="greedy", td_lambda=0.5), crafted_rollout()).returns
    cut = 2 + 0.9 * 7
    assert target.tolist() == pytest.approx([1 + 0.9 * (0.5 * 5 + 0.5 * cut), cut, 21])


def test_two_envs_out_of_phase() -> None:
    one = crafted_rollout()
    rollout = Rollout.allocate(4, 2, STATES, DiscreteActions(ACTIONS))
    assert isinstance(rollout.obs, np.ndarray)
    for name in ("obs", "actions", "reward", "valid", "truncated"):
        getattr(rollout, name)[:, 0] = getattr(one, name)[:, 0]
    # Env 1: s0 -a2-> s1, terminated; reset; s2 -a0-> s3 -a1-> s4 and on.
    rollout.obs[:, 1] = [0, 1, 2, 3, 4]
    rollout.actions[:, 1] = [2, 1, 0, 1]
    rollout.reward[:, 1] = [7, 0, 1, 2]
    rollout.valid[:, 1] = [True, False, True, True]
    rollout.terminated[0, 1] = True
    target = batch_of(agent_for(exploration="greedy", n_envs=2), rollout).returns.tolist()
    # In the order of rows, then envs: (0,0) (0,1) (1,0) (2,1) (3,0) (3,1).
    assert target == pytest.approx([5.5, 7, 8.3, 1 + 0.9 * 7, 21, 2 + 0.9 * 20])


def test_a_cut_episode_takes_no_action_of_the_next_even_without_a_reset_row() -> None:
    rollout = crafted_rollout()
    rollout.valid[:] = True
    actions = agent_for(exploration="greedy")._next_actions(rollout)[:, 0]
    assert actions.tolist() == [2, 1, 1, 2], "row 1 is cut at s3: the policy's 1, not the next 0"


def test_a_row_beyond_the_budget_is_no_next_row() -> None:
    rollout = crafted_rollout()
    rollout.truncated[:], rollout.valid[:] = False, True
    rollout.valid[3] = False
    actions = agent_for(exploration="greedy")._next_actions(rollout)[:, 0]
    assert actions[:3].tolist() == [2, 0, 2], "the policy's at s0, not the 1 that was cut off"


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"exploration": "epsilon_greedy", "epsilon": 0.6}, [0.2, 0.6, 0.2]),
        ({"exploration": "epsilon_greedy", "epsilon": 1.0}, [1 / 3] * 3),
        # Values 6, 7, 0 at temperature 1 / ln 2: odds 64 : 128 : 1.
        ({"exploration": "boltzmann", "temperature": 1.4426950}, [64 / 193, 128 / 193, 1 / 193]),
    ],
    ids=["epsilon", "random", "boltzmann"],
)
def test_draws_come_from_the_exploring_policy(
    settings: dict[str, Any], shares: list[float]
) -> None:
    agent = agent_for(n_envs=6000, **settings)
    agent.before_rollout(0, 100)
    drawn = agent._next_actions(crafted_rollout(6000))[1]
    assert np.bincount(drawn, minlength=3) / 6000 == pytest.approx(shares, abs=0.03)


def test_draws_for_targets_leave_the_acting_stream_alone() -> None:
    agent = agent_for(epsilon=1.0)
    acting, learning = (
        copy.deepcopy(rng.bit_generator.state) for rng in (agent.act_rng, agent.rng)
    )
    agent._next_actions(crafted_rollout())
    assert agent.policy.rng is agent.act_rng
    assert agent.act_rng.bit_generator.state == acting
    assert agent.rng.bit_generator.state != learning


def test_nothing_is_drawn_where_the_episode_terminated() -> None:
    agent = agent_for(epsilon=1.0)
    rollout = crafted_rollout().first(2)
    rollout.terminated[1], rollout.truncated[1] = True, False
    before = copy.deepcopy(agent.rng.bit_generator.state)
    agent._next_actions(rollout)
    assert agent.rng.bit_generator.state == before


def test_draws_obey_the_masks() -> None:
    n_envs = 500
    rollout = crafted_rollout(n_envs)
    rollout.mask = np.ones((5, n_envs, 3), bool)
    rollout.mask[2] = [True, False, True]  # s3, whose best is 1
    rollout.mask[4] = [False, True, False]  # s4, whose best is 2
    greedy = agent_for(exploration="greedy", n_envs=n_envs)._next_actions(rollout)
    assert (greedy[1] == 0).all()
    assert (greedy[3] == 1).all()
    random = agent_for(epsilon=1.0, n_envs=n_envs)._next_actions(rollout)
    assert set(random[1]) == {0, 2}
    assert set(random[3]) == {1}


def test_one_step_moves_the_value_of_the_action_taken_towards_its_target() -> None:
    agent = agent_for(exploration="greedy", optimizer="sgd", policy_lr=0.1, max_grad_norm=None)
    metrics = agent.update(crafted_rollout().first(2), 2, 100)
    # Q(s1, a0) = 4, target 5.5; Q(s2, a2) = 5, target 8.3. d loss / d Q = Q - target, two samples.
    after = agent.net.q_values(torch.arange(5)).detach().numpy()
    assert after[1, 0] == pytest.approx(4 + 2 * 0.1 * 1.5, rel=1e-5), "by weight and bias"
    assert after[2, 2] == pytest.approx(5 + 2 * 0.1 * 3.3, rel=1e-5)
    np.testing.assert_allclose(after[:, 1], TABLE[:, 1])
    assert metrics["opt/loss/td"] == pytest.approx((1.5**2 + 3.3**2) / 2, rel=1e-5)
    assert metrics["opt/q/mean"] == pytest.approx(4.5)
    assert agent.fit.descent.optimizer.n_steps == 1


def test_exploration_follows_its_schedules() -> None:
    agent = agent_for(epsilon={"start": 1.0, "end": 0.1}, temperature={"start": 2.0, "end": 1.0})
    assert (agent.policy.epsilon, agent.policy.temperature) == (0.1, 1.0)
    agent.before_rollout(50, 100)
    assert (agent.policy.epsilon, agent.policy.temperature) == pytest.approx((0.55, 1.5))


def test_the_recorded_gradient_is_used() -> None:
    agent = agent_for(hidden_dims=[8])
    agent.update(crafted_rollout(), 3, 100)
    assert agent.fit.descent.gradient._recorded is not None
