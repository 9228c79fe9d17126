"""Initial weights by name reach the hidden layers of every network, zeros the output layers."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from gymnasium_solver.algos import algo_class
from gymnasium_solver.nets.blocks import StackedLinear
from gymnasium_solver.nets.init import output_layers, reinitialise
from gymnasium_solver.nets.q_network import NoisyLinear
from tests.acting import generator

OBS = spaces.Box(-1, 1, (40,), np.float32)
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
# (actions, number of output layers)
ALGOS: dict[str, tuple[Any, int]] = {
    "ppo": (DISCRETE, 2), "a2c": (BOX, 2), "reinforce": (DISCRETE, 1), "dqn": (DISCRETE, 1),
    "pqn": (DISCRETE, 1), "sac": (BOX, 2), "td3": (BOX, 2), "ddpg": (BOX, 2), "crossq": (BOX, 2),
}  # fmt: skip


@pytest.mark.parametrize("init", ["orthogonal", "kaiming", "xavier", "uniform"])
def test_initial_weights_by_name(init: str) -> None:
    net: Any = nn.Module()
    net.torso = nn.Sequential(nn.Linear(200, 100), nn.ReLU())
    net.actor_head = nn.Linear(100, 3)
    head = net.actor_head.weight.detach().clone()
    reinitialise(net, init, 1.0, False, generator())
    expected = {
        "orthogonal": 2**0.5 * 200**-0.5,
        "kaiming": (2 / 200) ** 0.5,
        "xavier": (2 / 300) ** 0.5,
        "uniform": 200**-0.5 / 3**0.5,
    }
    std = float(net.torso[0].weight.detach().std())
    assert std == pytest.approx(expected[init], rel=0.05)
    assert (net.actor_head.weight == head).all()
    reinitialise(net, "auto", 1.0, True, generator())
    assert not net.actor_head.weight.any()


def agent_of(algo_id: str, **fields: Any) -> Any:
    algo = algo_class(algo_id)
    config = algo.Config(env_id="x", algo_id=algo_id, n_envs=2, hidden_dims=[32, 24], **fields)
    return algo(config, OBS, ALGOS[algo_id][0], seed=0)


def matrices(agent: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights [out, in] of the hidden and of the output layers of all trained networks."""
    hidden: list[torch.Tensor] = []
    last: list[torch.Tensor] = []
    for optimizer in agent.optimizers.values():
        outputs = output_layers(optimizer.module)
        for part in optimizer.module.modules():
            if isinstance(part, nn.Linear | NoisyLinear | StackedLinear):
                is_stack = isinstance(part, StackedLinear)
                found = [w.t() for w in part.weight] if is_stack else [part.weight]
                (last if any(part is one for one in outputs) else hidden).extend(found)
    return [w.detach() for w in hidden], [w.detach() for w in last]


@pytest.mark.parametrize("algo_id", list(ALGOS))
def test_they_reach_every_network_of_an_algorithm(algo_id: str) -> None:
    wide = {"critic_hidden_dims": [32, 24]} if algo_id == "crossq" else {}
    agent = agent_of(algo_id, init="orthogonal", init_gain=0.5, zero_last=True, **wide)
    hidden, last = matrices(agent)
    assert len(hidden) >= 2
    for weight in hidden:
        small = weight if weight.shape[0] < weight.shape[1] else weight.t()
        gram = small @ small.t()
        torch.testing.assert_close(gram, 0.5 * torch.eye(len(gram)), atol=1e-5, rtol=1e-5)
    n_stacked = 1 if algo_id == "ddpg" else 2
    n_last = ALGOS[algo_id][1]
    has_stack = algo_id in ("sac", "td3", "crossq", "ddpg")
    assert len(last) == (1 + n_stacked if has_stack else n_last)
    assert not any(weight.any() for weight in last)
    target = getattr(agent, "targets", {})
    for one in target.values():
        assert torch.equal(one.flat, one.source)  # the targets start as copies


def test_noisy_and_dueling_layers_too() -> None:
    agent = agent_of("dqn", init="kaiming", zero_last=True, dueling=True, noisy=True)
    hidden, last = matrices(agent)
    assert len(last) == 2
    assert not any(weight.any() for weight in last)
    assert float(hidden[-1].std()) == pytest.approx((2 / 32) ** 0.5, rel=0.1)


def test_spectral_norm_knows_the_new_weights() -> None:
    agent = agent_of("sac", init="orthogonal", init_gain=3.0, spectral_norm=True)
    layer = agent.net.critic.mlps.layers[0]
    sigma = float(torch.bmm(torch.bmm(layer.left, layer.weight), layer.right)[0].detach())
    assert sigma == pytest.approx(3.0 * 2**0.5, rel=1e-3)


def test_auto_leaves_the_weights_as_they_are() -> None:
    plain, named = agent_of("sac"), agent_of("sac", init="auto", init_gain=3.0)
    for a, b in zip(plain.net.parameters(), named.net.parameters(), strict=True):
        assert torch.equal(a, b)
