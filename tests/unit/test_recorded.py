"""The NumPy replay of a gradient is the torch gradient, for every loss and at every batch size."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos.ppo import PPO, Batch, PPOConfig
from gymnasium_solver.algos.reinforce import Reinforce, ReinforceConfig
from gymnasium_solver.fast import aten, recorded

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
OBS = spaces.Box(-10, 10, (5,), np.float32)


def ppo(action_space, **fields):
    config = PPOConfig(env_id="x", algo_id="ppo", n_envs=1, n_steps=64, **fields)
    return PPO(config, OBS, action_space, seed=0)


def batch_of(n, action_space, seed=0):
    g = torch.Generator().manual_seed(seed)
    is_discrete = isinstance(action_space, spaces.Discrete)
    normal = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    return Batch(
        x=normal(n, 5),
        actions=torch.randint(3, (n,), generator=g) if is_discrete else normal(n, 2),
        log_prob=-1.5 + 0.3 * normal(n),
        advantage=normal(n),
        returns=normal(n),
        value=normal(n),
    ).columns()


VARIANTS = [
    {},
    {"ent_coef": 0.01},
    {"clip_range_vf": 0.2, "ent_coef": 0.01},
    {"target_kl": 0.01},
    {"activation": "relu"},
    {"share_trunk": True},
    {"hidden_dims": []},
    {"hidden_dims": [61, 67]},  # the sizes that recording probes with
]


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
@pytest.mark.parametrize("action_space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_replay_equals_torch(action_space, fields):
    agent = ppo(action_space, **fields)
    agent.net.actor_head.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    coefficients = [0.2, 0.5, 0.01, 0.3][: len(agent.coefficient_names)]
    params = agent.optimizer.params
    gradient = recorded.record_gradient(
        agent._loss, params, batch_of(64, action_space), coefficients
    )
    assert gradient is not None, "this loss should be replayable"
    for n in (1, 2, 61, 100):
        batch = batch_of(n, action_space, seed=n)
        expected = recorded.eager(agent._loss, params, batch, coefficients)
        got = gradient(batch, coefficients)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_replay_follows_weights_and_coefficients():
    agent = ppo(DISCRETE, ent_coef=0.01)
    params, batch = agent.optimizer.params, batch_of(64, DISCRETE)
    gradient = recorded.record_gradient(agent._loss, params, batch, [0.2, 0.5, 0.01])
    assert gradient is not None
    before = gradient(batch, [0.2, 0.5, 0.01])[0].clone()
    assert not torch.allclose(before, gradient(batch, [0.2, 0.1, 0.01])[0])
    agent.optimizer.step(before, lr=0.1)
    after = gradient(batch, [0.2, 0.5, 0.01])[0]
    expected = recorded.eager(agent._loss, params, batch, [0.2, 0.5, 0.01])[0]
    torch.testing.assert_close(after, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("targets", ["returns", "advantages"])
def test_reinforce_replays_too(targets):
    config = ReinforceConfig(env_id="x", algo_id="reinforce", n_envs=1, policy_targets=targets)
    agent = Reinforce(config, OBS, DISCRETE, seed=0)
    x, actions, _, weight, returns, _ = batch_of(32, DISCRETE)
    batch = (x, actions, weight, returns)
    gradient = recorded.record_gradient(agent._loss, agent.optimizer.params, batch, [0.01, 0.5])
    assert gradient is not None
    expected = recorded.eager(agent._loss, agent.optimizer.params, batch, [0.01, 0.5])
    for a, b in zip(gradient(batch, [0.01, 0.5]), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_a_wrong_replay_is_not_used(monkeypatch):
    monkeypatch.setitem(aten.OPERATIONS, "tanh.default", np.sin)
    agent = ppo(DISCRETE)
    batch = batch_of(64, DISCRETE)
    assert recorded.record_gradient(agent._loss, agent.optimizer.params, batch, [0.2, 0.5]) is None


def test_a_broken_replay_is_not_used(monkeypatch):
    monkeypatch.setitem(aten.OPERATIONS, "tanh.default", lambda: None)
    agent = ppo(DISCRETE)
    batch = batch_of(64, DISCRETE)
    assert recorded.record_gradient(agent._loss, agent.optimizer.params, batch, [0.2, 0.5]) is None
