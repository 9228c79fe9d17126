"""Acting from a copy of the weights: the same outputs, always of the present weights."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.fast.forward import MOST_WORK, HostCopy
from gymnasium_solver.fast.optimizer import flatten_parameters
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.network import network_for
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.training.prepare import load_config

OBS = spaces.Box(-1, 1, (4,), np.float32)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU"))]  # fmt: skip


@pytest.fixture(params=DEVICES)
def net(request: pytest.FixtureRequest) -> ActorCritic:
    config = load_config("Pendulum-v1:ppo", overrides={"hidden_dims": [8, 8]})
    assert isinstance(config, LearnerConfig)
    made = ActorCritic(
        OBS, action_kind(spaces.Box(-1, 1, (2,), np.float32)),
        network_for(config, OBS)._replace(normalize="rolling"),
        generator=torch.Generator().manual_seed(1),
    ).to(request.param)  # fmt: skip
    flatten_parameters(made)
    return made


def expected(net: ActorCritic, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net.actor(torch.from_numpy(obs).to(net.device)).cpu().numpy()


def test_it_follows_weights_and_statistics(net: ActorCritic) -> None:
    host, obs = HostCopy(net, "actor"), np.random.default_rng(0).normal(size=(6, 4))
    obs = obs.astype(np.float32)
    with host.fresh():
        np.testing.assert_allclose(host(obs), expected(net, obs), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1)
    net.encoder.observe(obs * 3 + 1)
    with host.fresh(), host.fresh():
        np.testing.assert_allclose(host(obs), expected(net, obs), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="fresh"):
        host(obs)


def test_a_policy_acts_from_it_while_it_is_still_and_with_few_rows(net: ActorCritic) -> None:
    actions, rng = action_kind(spaces.Box(-1, 1, (2,), np.float32)), np.random.default_rng(0)
    policy = ActorPolicy(net, OBS, actions, rng, record=False, on_host=True)
    n_most = MOST_WORK // sum(p.numel() for p in net.parameters())
    assert policy.acts_on_host(n_most)
    assert not policy.acts_on_host(n_most + 1)
    used: list[int] = []
    assert policy._host is not None
    plain = HostCopy.__call__

    def spied(self: HostCopy, x: np.ndarray) -> object:
        used.append(len(x))
        return plain(self, x)

    obs, first = np.ones((3, 4), np.float32), np.ones(3, bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostCopy, "__call__", spied)
        policy.greedy(obs, {}, first)
        assert used == []  # the weights may change between two calls
        with policy.still():
            np.testing.assert_allclose(
                policy.greedy(obs, {}, first).actions, expected(net, obs), rtol=1e-4, atol=1e-5
            )
            assert policy.log_std() is not None
            policy.sample(np.ones((n_most + 1, 4), np.float32), {}, np.ones(n_most + 1, bool))
            policy.greedy(torch.from_numpy(obs).to(net.device), {}, first)
        assert used == [3]
