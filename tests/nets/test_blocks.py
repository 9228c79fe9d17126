"""Blocks of layers: stacked networks against single ones, SimBa, norms, a shared encoder."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.blocks import Blocks, Residual, StackedMLP
from gymnasium_solver.nets.network import Network, network_for
from gymnasium_solver.registry import config_class
from tests.acting import generator


def config_for(algo_id: str, **fields: Any) -> Any:
    return config_class(algo_id)(algo_id=algo_id, env_id="Test-v0", **fields)


KINDS: list[dict[str, Any]] = [
    {}, {"norm": "layer"}, {"norm": "rms"}, {"kind": "simba"}, {"kind": "simba", "norm": "rms"}
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_network_of_a_stack_is_a_network_of_its_own(kind: dict[str, Any]) -> None:
    stack = StackedMLP(Blocks("relu", generator(), n=3, **kind), 5, (8, 8), 2)
    for parameter in stack.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator(1))
    blocks = Blocks("relu", generator(), **kind)
    x = torch.randn(11, 5, generator=generator(2))
    for i in range(3):
        single = nn.Sequential(*blocks.hidden(5, (8, 8)), *blocks.outputs(8, 2))
        for own, stacked in zip(single.parameters(), stack.parameters(), strict=True):
            one = stacked.data[i]
            own.data = one.T.clone() if own.ndim == 2 else one.reshape(own.shape).clone()
        torch.testing.assert_close(stack(x)[i], single(x))
        if i == 0:
            torch.testing.assert_close(stack.first(x), single(x))


def test_a_simba_block_adds_to_a_normalised_path() -> None:
    layers = Blocks("relu", generator(), kind="simba").hidden(3, (16, 16))
    assert [type(layer) for layer in layers] == [nn.Linear, Residual, Residual, nn.LayerNorm]
    inner: Any = layers[1].layers
    assert (inner[1].in_features, inner[1].out_features) == (16, 64)


def test_simba_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ConfigError, match="simba needs hidden layers of one width"):
        Blocks("relu", generator(), kind="simba").hidden(3, (16, 8))
    config = config_for("ppo", block="simba", layers=[{"linear": 8}, "relu"])
    with pytest.raises(ConfigError, match="block and norm describe hidden_dims"):
        network_for(config, spaces.Box(-1, 1, (3,), np.float32))


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "sac", "td3", "pqn"])
@pytest.mark.parametrize(
    "fields", [{"block": "simba"}, {"norm": "rms"}, {"norm": "layer"}], ids=str
)
def test_every_learner_takes_blocks_and_norms(algo_id: str, fields: dict[str, Any]) -> None:
    config = config_for(algo_id, **fields)
    network = network_for(config, spaces.Box(-1, 1, (3,), np.float32))
    assert network.block == config.block
    assert network.norm == config.norm


def test_the_old_name_of_layer_norm_is_read() -> None:
    assert config_for("pqn", layer_norm=False).norm is None
    assert config_for("sarsa", layer_norm=True).norm == "layer"


PICTURE = spaces.Box(0, 255, (12, 12, 3), np.uint8)


def picture_nets(share_encoder: bool) -> ActorCritics:
    network = network_for(config_for("sac"), PICTURE)
    return ActorCritics(
        PICTURE, network, n_actor_outputs=2, n_critics=2, n_critic_actions=1,
        share_encoder=share_encoder, generator=generator(),
    )  # fmt: skip


def test_a_shared_encoder_belongs_to_the_critics() -> None:
    nets = picture_nets(share_encoder=True)
    assert not any("features" in name for name, _ in nets.actor.named_parameters())
    assert nets.actor_features is nets.critic.features
    n_own = sum(p.numel() for p in picture_nets(share_encoder=False).parameters())
    assert sum(p.numel() for p in nets.parameters()) < n_own
    x = nets.encoder(torch.from_numpy(np.zeros((4, *PICTURE.shape), np.uint8)))
    before = nets.actor(x)
    nets.critic.features.convolutions[0][0].bias.data += 1.0  # type: ignore[index]
    assert not torch.equal(nets.actor(x), before)
    alone = copy.deepcopy(nets.actor)
    torch.testing.assert_close(alone(x), nets.actor(x))
    nets.critic.features.convolutions[0][0].bias.data += 1.0  # type: ignore[index]
    torch.testing.assert_close(alone(x), nets.actor(x), msg="a target actor uses the same features")
    both = copy.deepcopy(nets)
    assert both.actor_features is both.critic.features
    assert both.actor_features is not nets.actor_features


def test_a_shared_encoder_without_learnt_layers_is_refused() -> None:
    network = Network((8,), "relu")
    with pytest.raises(ConfigError, match="not encoded by learnt layers"):
        ActorCritics(
            spaces.Box(-1, 1, (3,), np.float32), network, n_actor_outputs=2, n_critics=2,
            n_critic_actions=1, share_encoder=True, generator=generator(),
        )  # fmt: skip
