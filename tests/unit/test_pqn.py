"""PQN: Q(lambda) returns and targets against numbers worked by hand, with gamma .9 and lambda .5
unless said; masks; exploration."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos import ops
from gymnasium_solver.errors import ConfigError
from tests.acting import best, drawn
from tests.unit.q_table import STATES, TABLE, batch_of, crafted_rollout, table_agent

GAMMA, LAMBDA = 0.9, 0.5
BOX = spaces.Box(-10, 10, (3,), np.float32)


def grid(*rows: Any) -> np.ndarray:
    """One env, unless a row is a list."""
    values = np.array(rows, np.float32)
    return values[:, None] if values.ndim == 1 else values


def flags(*rows: Any) -> np.ndarray:
    return grid(*rows).astype(bool)


def lambda_returns(
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray | None = None,
    truncated: np.ndarray | None = None,
    valid: np.ndarray | None = None,
    td_lambda: float = LAMBDA,
) -> np.ndarray:
    none = np.zeros(reward.shape, bool)
    return ops.lambda_returns(
        reward,
        next_value,
        none if terminated is None else terminated,
        none if truncated is None else truncated,
        ~none if valid is None else valid,
        GAMMA,
        td_lambda,
    )


# -- returns --------------------------------------------------------------------------------


def test_the_rollout_edge_bootstraps() -> None:
    got = lambda_returns(grid(1, 2), grid(4, 8))
    last = 2 + 0.9 * 8  # 9.2
    assert got[:, 0] == pytest.approx([1 + 0.9 * (0.5 * 4 + 0.5 * last), last])
    assert got[:, 0] == pytest.approx([6.94, 9.2])


def test_a_termination_does_not_bootstrap_whatever_follows() -> None:
    for follows in (1000, np.inf, np.nan):
        got = lambda_returns(grid(1, 2), grid(4, follows), terminated=flags(0, 1))
        assert got[:, 0] == pytest.approx([1 + 0.9 * (0.5 * 4 + 0.5 * 2), 2])


def test_a_truncation_bootstraps_and_nothing_comes_from_the_next_episode() -> None:
    # rows: step, last step of the episode, reset row, first step of the next (hugely rewarded)
    got = lambda_returns(
        grid(1, 2, 500, 1000),
        grid(4, 8, 300, 10),
        truncated=flags(0, 1, 0, 0),
        valid=flags(1, 1, 0, 1),
    )
    assert got[:, 0] == pytest.approx([6.94, 9.2, 0, 1000 + 0.9 * 10])


def test_a_termination_in_the_middle_stops_the_sum() -> None:
    got = lambda_returns(
        grid(1, 2, 500, 1000),
        grid(4, 8, 300, 10),
        terminated=flags(0, 1, 0, 0),
        valid=flags(1, 1, 0, 1),
    )
    assert got[:, 0] == pytest.approx([3.7, 2, 0, 1009])


def test_both_flags_mean_termination() -> None:
    both = flags(1)
    got = lambda_returns(grid(2), grid(8), terminated=both, truncated=both)
    assert got[:, 0] == pytest.approx([2])


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_an_end_stops_the_sum_even_without_a_reset_row_after_it(kind: str) -> None:
    ended: dict[str, Any] = {kind: flags(1, 0)}
    got = lambda_returns(grid(1, 1000), grid(4, 0), **ended)
    first = 1 if kind == "terminated" else 1 + 0.9 * 4
    assert got[:, 0] == pytest.approx([first, 1000])


def test_a_row_beyond_the_budget_passes_nothing_on() -> None:
    got = lambda_returns(grid(1, 500), grid(4, 300), valid=flags(1, 0))
    assert got[:, 0] == pytest.approx([1 + 0.9 * 4, 0])


def test_two_envs_out_of_phase() -> None:
    # Env 0 is truncated at row 1, env 1 terminates at row 0 and goes on after its reset row.
    got = lambda_returns(
        grid([1, 7], [2, 9], [0, 1], [3, 2]),
        grid([4, 50], [8, 60], [70, 4], [10, 8]),
        terminated=flags([0, 1], [0, 0], [0, 0], [0, 0]),
        truncated=flags([0, 0], [1, 0], [0, 0], [0, 0]),
        valid=flags([1, 1], [1, 0], [0, 1], [1, 1]),
    )
    assert got[:, 0] == pytest.approx([6.94, 9.2, 0, 3 + 0.9 * 10])
    assert got[:, 1] == pytest.approx([7, 0, 6.94, 9.2])


def test_lambda_0_is_one_step_and_lambda_1_is_the_return() -> None:
    reward, next_value = grid(1, 2, 0, 5), grid(4, 8, 300, 10)
    ends: dict[str, Any] = {"truncated": flags(0, 1, 0, 0), "valid": flags(1, 1, 0, 1)}
    one_step = lambda_returns(reward, next_value, **ends, td_lambda=0.0)
    assert one_step[:, 0] == pytest.approx([1 + 0.9 * 4, 2 + 0.9 * 8, 0, 5 + 0.9 * 10])
    whole = lambda_returns(reward, next_value, **ends, td_lambda=1.0)
    assert whole[:, 0] == pytest.approx([1 + 0.9 * 2 + 0.81 * 8, 2 + 0.9 * 8, 0, 14])


def test_with_state_values_it_is_gae_plus_the_value() -> None:
    rng = np.random.default_rng(0)
    shape = (40, 5)
    reward, values = rng.normal(size=shape), rng.normal(size=(41, 5))
    terminated, truncated = rng.random(shape) < 0.1, rng.random(shape) < 0.1
    valid = np.ones(shape, bool)
    valid[1:] = ~(terminated | truncated)[:-1]
    terminated &= valid
    truncated &= valid
    ends = terminated, truncated, valid, GAMMA
    got = ops.lambda_returns(reward, values[1:], *ends, LAMBDA)
    expected = (ops.gae(reward, values, *ends, LAMBDA) + values[:-1]) * valid
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


# -- targets --------------------------------------------------------------------------------


def agent_for(obs: Any = STATES, **fields: Any) -> Any:
    return table_agent("pqn", obs, **{"td_lambda": LAMBDA, **fields})


def test_targets_are_those_of_the_best_next_action() -> None:
    batch = batch_of(agent_for(), crafted_rollout())
    cut = 2 + 0.9 * 7  # the best of s3, the final observation
    first = 1 + 0.9 * (0.5 * 8 + 0.5 * cut)  # the best of s2 is 8
    last = 3 + 0.9 * 20  # the best of s4
    assert batch.target.tolist() == pytest.approx([first, cut, last])
    assert batch.actions.tolist() == [0, 2, 1]
    assert batch.obs.tolist() == [1, 2, 0], "the reset row is not learnt from"


def test_a_terminated_episode_has_no_next_value() -> None:
    rollout = crafted_rollout()
    rollout.terminated[1], rollout.truncated[1] = True, False
    target = batch_of(agent_for(), rollout).target.tolist()
    assert target == pytest.approx([1 + 0.9 * (0.5 * 8 + 0.5 * 2), 2, 21])


def test_forbidden_actions_are_not_bootstrapped_from() -> None:
    rollout = crafted_rollout()
    rollout.mask = np.ones((5, 1, 3), bool)
    rollout.mask[1, 0] = [True, False, True]  # s2: 5 is left
    rollout.mask[2, 0] = [False, False, True]  # s3: 0 is left
    rollout.mask[4, 0] = [True, True, False]  # s4: 10 is left
    target = batch_of(agent_for(), rollout).target.tolist()
    cut = 2 + 0.9 * 0
    assert target == pytest.approx([1 + 0.9 * (0.5 * 5 + 0.5 * cut), cut, 3 + 0.9 * 10])


def test_rewards_are_normalised_before_returns_are_summed() -> None:
    plain, scaled = agent_for(), agent_for(normalize_reward=True)
    rollout = crafted_rollout()
    scale = 0.5
    scaled.reward_normalizer.var, scaled.reward_normalizer.count = np.array(1 / scale**2), 1e9
    rollout.reward *= 1 / scale
    got = batch_of(scaled, rollout).target
    torch.testing.assert_close(got, batch_of(plain, crafted_rollout()).target, rtol=1e-4, atol=1e-4)


def test_one_step_moves_the_value_of_the_action_taken_towards_its_target() -> None:
    agent = agent_for(optimizer="sgd", policy_lr=0.1, n_epochs=1, max_grad_norm=None)
    rollout = crafted_rollout().first(1)  # Q(s1, a0) = 4, target 1 + 0.9 * 8 = 8.2
    metrics = agent.update(rollout, 1, 100)
    after = agent.net.q_values(torch.arange(5)).detach().numpy()
    # d loss / d Q = 2 (4 - 8.2) = -8.4; weight and bias of action 0 move by 0.84 each.
    assert after[1, 0] == pytest.approx(4 + 2 * 0.84, rel=1e-5)
    assert after[0, 0] == pytest.approx(1 + 0.84, rel=1e-5), "the bias is shared by the states"
    np.testing.assert_allclose(after[:, 1:], TABLE[:, 1:])
    assert metrics["opt/loss/td"] == pytest.approx(4.2**2, rel=1e-5)
    assert metrics["opt/q/mean"] == pytest.approx(4)
    assert metrics["opt/grads/norm/all"] == pytest.approx(8.4 * 2**0.5, rel=1e-5)


def test_minibatches_and_passes() -> None:
    agent = agent_for(n_epochs=5, batch_size=2)
    agent.update(crafted_rollout(), 3, 100)
    assert agent.fit.descent.optimizer.n_steps == 5 * 2, "three valid rows make two minibatches"


# -- acting ---------------------------------------------------------------------------------


def test_epsilon_follows_its_schedule() -> None:
    agent = agent_for(epsilon={"start": 1.0, "end": 0.1, "to": 0.5})
    assert agent.policy.epsilon == 0.1, "an agent that only acts is at the end of its training"
    for env_steps, epsilon in ((0, 1.0), (25, 0.55), (50, 0.1), (90, 0.1)):
        agent.before_rollout(env_steps, 100)
        assert agent.policy.epsilon == pytest.approx(epsilon)
        metrics = agent.update(crafted_rollout(), env_steps, 100)
        assert metrics["hp/epsilon"] == pytest.approx(epsilon)


def test_each_env_draws_for_itself_whether_it_explores() -> None:
    """One draw for all envs would make a step's share of random actions either 0 or 1."""
    agent = agent_for(BOX, actions=spaces.Discrete(1000))
    agent.policy.epsilon = 0.5
    obs = np.ones((4000, 3), np.float32)
    greedy = best(agent.policy, obs)
    shares = [float((drawn(agent.policy, obs) != greedy).mean()) for _ in range(5)]
    # 0.5 but for the random actions that are the best: a thousandth. Deviation 0.008.
    assert shares == pytest.approx([0.5] * 5, abs=0.04)
    assert len(set(shares)) > 1


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_forbidden_actions_are_never_taken(epsilon: float) -> None:
    agent = agent_for()
    agent.policy.epsilon = epsilon
    obs = np.tile(np.arange(5), 400)
    mask = np.ones((2000, 3), bool)
    mask[np.arange(2000), TABLE.argmax(axis=1)[obs]] = False  # the best of each state
    taken = drawn(agent.policy, obs, mask)
    assert mask[np.arange(2000), taken].all()
    second = np.where(mask, TABLE[obs], -np.inf).argmax(axis=1)
    np.testing.assert_array_equal(best(agent.policy, obs, mask), second)
    np.testing.assert_array_equal(agent.act(obs[:5], mask=mask[:5]), second[:5])
    if epsilon == 1:
        counts = [np.sum(taken[obs == 1] == a) for a in (1, 2)]
        assert counts == pytest.approx([200, 200], abs=50), "evenly among the legal ones"


def test_continuous_actions_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"pqn needs Discrete actions.*Box.*use ppo, sac or td3"):
        agent_for(actions=spaces.Box(-1, 1, (2,), np.float32))


@pytest.mark.parametrize("norm", ["layer", "rms", None])
def test_the_recorded_gradient_is_used_and_agrees_with_torch(norm: str | None) -> None:
    fields: dict[str, Any] = {"hidden_dims": [8, 8], "norm": norm, "n_epochs": 3}
    agents = [agent_for(compile=compile, **fields) for compile in (True, False)]
    for agent in agents:
        agent.update(crafted_rollout(), 3, 100)
    assert agents[0].fit.descent.gradient._recorded is not None
    assert agents[1].fit.descent.gradient._recorded is None
    torch.testing.assert_close(
        agents[0].fit.descent.optimizer.flat, agents[1].fit.descent.optimizer.flat
    )


def test_layer_norm_is_in_every_hidden_layer() -> None:
    for on in (True, False):
        net = agent_for(hidden_dims=[8, 8], layer_norm=on).net
        n_norms = sum(isinstance(module, torch.nn.LayerNorm) for module in net.modules())
        assert n_norms == (2 if on else 0)
