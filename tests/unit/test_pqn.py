"""PQN: targets against numbers worked by hand, with gamma .9 and lambda .5; masks; exploration. Its
returns are in test_ops.py."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.acting import best, drawn
from tests.unit.q_table import STATES, TABLE, batch_of, crafted_rollout, table_agent

BOX = spaces.Box(-10, 10, (3,), np.float32)


def agent_for(obs: Any = STATES, **fields: Any) -> Any:
    return table_agent("pqn", obs, **{"td_lambda": 0.5, **fields})


def test_targets_are_those_of_the_best_next_action() -> None:
    batch = batch_of(agent_for(), crafted_rollout())
    cut = 2 + 0.9 * 7  # the best of s3, the final observation
    first = 1 + 0.9 * (0.5 * 8 + 0.5 * cut)  # the best of s2 is 8
    last = 3 + 0.9 * 20  # the best of s4
    assert batch.returns.tolist() == pytest.approx([first, cut, last])
    assert batch.actions.tolist() == [0, 2, 1]
    assert batch.obs.tolist() == [1, 2, 0], "the reset row is not learnt from"


def test_a_terminated_episode_has_no_next_value() -> None:
    rollout = crafted_rollout()
    rollout.terminated[1], rollout.truncated[1] = True, False
    target = batch_of(agent_for(), rollout).returns.tolist()
    assert target == pytest.approx([1 + 0.9 * (0.5 * 8 + 0.5 * 2), 2, 21])


def test_forbidden_actions_are_not_bootstrapped_from() -> None:
    rollout = crafted_rollout()
    rollout.mask = np.ones((5, 1, 3), bool)
    rollout.mask[1, 0] = [True, False, True]  # s2: 5 is left
    rollout.mask[2, 0] = [False, False, True]  # s3: 0 is left
    rollout.mask[4, 0] = [True, True, False]  # s4: 10 is left
    target = batch_of(agent_for(), rollout).returns.tolist()
    cut = 2 + 0.9 * 0
    assert target == pytest.approx([1 + 0.9 * (0.5 * 5 + 0.5 * cut), cut, 3 + 0.9 * 10])


def test_rewards_are_normalised_before_returns_are_summed() -> None:
    plain, scaled = agent_for(), agent_for(normalize_reward=True)
    rollout = crafted_rollout()
    scale = 0.5
    scaled.reward_normalizer.var, scaled.reward_normalizer.count = np.array(1 / scale**2), 1e9
    rollout.reward *= 1 / scale
    got = batch_of(scaled, rollout).returns
    torch.testing.assert_close(
        got, batch_of(plain, crafted_rollout()).returns, rtol=1e-4, atol=1e-4
    )


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
