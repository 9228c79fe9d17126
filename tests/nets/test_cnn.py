"""Convolutional torsos: how images lie, which network a config means, and what it computes."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from gymnasium_solver.algos.ppo import PPOConfig
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.cnn import (
    PRESETS,
    Cnn,
    convolutions,
    default_preset,
    smallest_side,
)
from gymnasium_solver.nets.encoder import ObsEncoder, in_chunks
from gymnasium_solver.nets.network import Network, network_for
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import Exploration, QPolicy
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.spaces.observations import ImageLayout, image_layout
from gymnasium_solver.spaces.space_types import space_from_json, space_to_json
from gymnasium_solver.training.prepare import build_config

ACTIONS = DiscreteActions(spaces.Discrete(3))


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def config(**fields: Any) -> PPOConfig:
    made = build_config({"env_id": "X", "algo_id": "ppo", **fields})
    assert isinstance(made, PPOConfig)
    return made


def draw(n: int, space: spaces.Box, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *space.shape), dtype=np.uint8)


# -- how an image lies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((4, 84, 84), (4, 84, 84)),  # a stack of grey frames, as Atari engines give it
        ((84, 84, 3), (3, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((7, 7, 3), (3, 7, 7)),  # MiniGrid
        ((3, 64, 64), (3, 64, 64)),  # Procgen
        ((4, 84, 84, 3), (12, 84, 84)),  # ale-py: a stack of colour frames
        ((4, 84, 84, 1), (4, 84, 84)),
        ((4, 3, 64, 64), (12, 64, 64)),
        ((84, 84), (1, 84, 84)),
        ((3, 3, 3), (3, 3, 3)),
    ],
)
def test_the_planes_of_an_image(shape: tuple[int, ...], planes: tuple[int, ...]) -> None:
    layout = image_layout(image(*shape))
    assert layout is not None
    assert layout[:3] == planes
    assert layout.planes(torch.zeros(2, *shape)).shape == (2, *planes)


def test_planes_hold_the_right_pixels() -> None:
    for shape, axes in (((6, 5, 3), (2, 0, 1)), ((2, 6, 5, 3), (0, 3, 1, 2))):
        layout = image_layout(image(*shape))
        assert layout is not None
        obs = draw(2, image(*shape))
        expected = np.stack([o.transpose(axes).reshape(-1, 6, 5) for o in obs])
        assert np.array_equal(layout.planes(torch.from_numpy(obs)).numpy(), expected)


@pytest.mark.parametrize(
    "space",
    [
        image(128),  # the RAM of an Atari console
        image(4, 128),  # a stack of it
        spaces.Box(-1, 1, (8,), np.float32),
        spaces.Discrete(4),
    ],
    ids=str,
)
def test_no_image(space: spaces.Space) -> None:
    assert image_layout(space) is None


# -- torsos -------------------------------------------------------------------------------------


def built(preset: str, c: int, h: int, w: int, **options: Any) -> tuple[nn.Sequential, int]:
    cnn = Cnn(ImageLayout(c, h, w, (0, 1, 2)), preset, **options)
    return convolutions(cnn, math.sqrt(2), generator())


@pytest.mark.parametrize(
    ("preset", "planes", "n_features"),
    [
        ("cnn_nature", (4, 84, 84), 64 * 7 * 7),
        ("cnn_nature", (3, 64, 64), 64 * 4 * 4),
        ("cnn_nature", (3, 36, 36), 64),
        ("cnn_impala", (4, 84, 84), 32 * 11 * 11),
        ("cnn_impala", (3, 64, 64), 32 * 8 * 8),
        ("cnn_impala", (3, 7, 7), 32),
        ("cnn_large", (4, 84, 84), 64 * 11 * 11),
        ("cnn_small", (3, 7, 7), 64 * 2 * 2),
        ("cnn_small", (1, 1, 1), 64),
    ],
)
def test_sizes(preset: str, planes: tuple[int, int, int], n_features: int) -> None:
    module, n = built(preset, *planes)
    assert n == n_features
    assert module(torch.rand(2, *planes)).shape == (2, n_features)


def test_nature_is_the_papers() -> None:
    """Mnih et al. 2015 with 6 actions has 1,687,206 weights; the value comes on top."""
    cnn = Cnn(ImageLayout(4, 84, 84, (0, 1, 2)))
    network = Network(PRESETS["cnn_nature"].hidden_dims, "relu", {"": cnn})
    net = ActorCritic(
        image(4, 84, 84),
        DiscreteActions(spaces.Discrete(6)),
        network,
        share_trunk=True,
        generator=generator(),
    )
    assert sum(p.numel() for p in net.parameters()) == 1_687_206 + 512 + 1


@pytest.mark.parametrize(("preset", "least"), [("cnn_nature", 36), ("cnn_small", 1)])
def test_the_smallest_image(preset: str, least: int) -> None:
    assert smallest_side(PRESETS[preset]) == least
    built(preset, 1, least, least)


def test_an_image_too_small_is_told_which_torso_fits() -> None:
    with pytest.raises(ConfigError, match=r"at least 36 x 36.* 7 x 7: use cnn_small or cnn_impala"):
        built("cnn_nature", 3, 7, 7)


def test_channels_can_be_given() -> None:
    assert built("cnn_impala", 3, 64, 64, channels=(8, 16))[1] == 16 * 16 * 16
    assert built("cnn_nature", 4, 84, 84, channels=(8, 8, 8))[1] == 8 * 7 * 7
    with pytest.raises(ConfigError, match=r"cnn_channels: \[8\].*3 layers"):
        built("cnn_nature", 4, 84, 84, channels=(8,))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_first_features_are_neither_dead_nor_exploding(preset: str) -> None:
    module, _ = built(preset, 4, 64, 64)
    features = module(torch.rand(16, 4, 64, 64)).detach()
    assert 0.05 < float(features.square().mean().sqrt()) < 5.0
    assert float((features > 0).float().mean()) > 0.1


def test_orthogonal_weights() -> None:
    module, _ = built("cnn_nature", 4, 84, 84)
    first = module[0]
    assert isinstance(first, nn.Conv2d)
    assert first.bias is not None
    rows = first.weight.detach().flatten(1)
    assert torch.allclose(rows @ rows.T, 2 * torch.eye(32), atol=1e-5)
    assert not first.bias.detach().any()


# -- which network a config means ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "fields", "preset"),
    [
        (image(4, 84, 84), {}, "cnn_nature"),
        (image(8, 9, 3), {}, "cnn_small"),
        (image(7, 7, 3), {}, None),  # MiniGrid's codes of cells
        (image(7, 7, 3), {"policy": "cnn"}, "cnn_small"),
        (spaces.Box(0, 1, (8, 8, 12), np.uint8), {}, None),  # a board, not pixels
        (spaces.Box(0, 1, (8, 8, 12), np.uint8), {"policy": "cnn"}, "cnn_small"),
        (spaces.Box(0, 1, (40, 40), np.uint8), {}, None),
        (image(64, 64, 3), {"model_id": "cnn_impala"}, "cnn_impala"),
        (image(64, 64, 3), {"model_id": "large"}, "cnn_large"),
        (image(64, 64, 3), {"policy": "cnn_actorcritic"}, "cnn_nature"),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), {"policy": "cnn"}, "cnn_nature"),
        (image(128), {}, None),
        (image(7, 7, 3), {"policy": "mlp"}, None),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), {}, None),
        (spaces.Discrete(5), {}, None),
    ],
)
def test_auto(space: spaces.Space, fields: dict[str, Any], preset: str | None) -> None:
    network = network_for(config(**fields), space)
    assert [cnn.preset_id for cnn in network.cnns.values()] == ([preset] if preset else [])
    assert network.activation == ("relu" if preset else "tanh")
    if preset:
        assert network.hidden_dims == PRESETS[preset].hidden_dims


def test_layers_after_the_convolutions() -> None:
    assert network_for(config(cnn_hidden_dims=[64, 32]), image(9, 9, 3)).hidden_dims == (64, 32)
    assert network_for(config(cnn_hidden_dims=[]), image(9, 9, 3)).hidden_dims == ()


@pytest.mark.parametrize(
    ("space", "fields", "told"),
    [
        (image(4, 84, 84), {"policy": "mlp"}, "28,224 inputs; use policy: cnn"),
        (spaces.Box(0, 1, (40, 40, 9), np.uint8), {}, "14,400 inputs; use policy: cnn"),
        (image(128), {"policy": "cnn"}, "policy: cnn needs images.*use policy: mlp"),
        (spaces.Discrete(4), {"model_id": "cnn_nature"}, "policy: cnn needs images"),
        (image(4, 84, 84), {"hidden_dims": [8]}, "set cnn_hidden_dims"),
        (image(4, 84, 84), {"activation": "gelu"}, "cnn with relu"),
        (image(128), {"cnn_channels": [8, 8, 8]}, "uses an mlp.*policy: cnn"),
    ],
)
def test_what_does_not_fit_is_refused(
    space: spaces.Space, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        network_for(config(**fields), space)


def test_a_preset_and_another_kind_of_policy_contradict() -> None:
    with pytest.raises(
        ConfigError, match="model_id cnn_nature means policy cnn, but policy is mlp"
    ):
        config(model_id="nature", policy="mlp")
    assert config(model_id="mlp_small").policy == "mlp"
    assert config(model_id="impala").model_id == "cnn_impala"


def test_the_default_preset_is_the_largest_that_fits() -> None:
    assert default_preset(ImageLayout(3, 36, 40, (2, 0, 1))) == "cnn_nature"
    assert default_preset(ImageLayout(3, 35, 40, (2, 0, 1))) == "cnn_small"


# -- what the networks do with images -----------------------------------------------------------


def actor_critic(space: spaces.Box, **options: Any) -> ActorCritic:
    network = network_for(config(), space)
    return ActorCritic(space, ACTIONS, network, generator=generator(), **options)


def image_encoder(space: spaces.Box, **options: Any) -> ObsEncoder:
    return ObsEncoder(space, images=[""], **options)


def test_images_become_floats_in_the_network() -> None:
    space = image(40, 40, 3)
    encoder, obs = image_encoder(space), draw(5, space)
    encoded = encoder(torch.from_numpy(obs))
    assert isinstance(encoded, dict)
    assert list(encoded) == ["image "]
    planes = encoded["image "]
    assert planes.dtype == torch.float32
    expected = obs.transpose(0, 3, 1, 2).astype(np.float32) / 255
    np.testing.assert_allclose(planes.numpy(), expected, rtol=1e-6)


def test_the_order_of_axes_does_not_matter() -> None:
    last, first = image(40, 40, 3), image(3, 40, 40)
    obs = torch.from_numpy(draw(5, last))
    with torch.no_grad():
        a = actor_critic(last).actor(obs)
        b = actor_critic(first).actor(obs.permute(0, 3, 1, 2).contiguous())
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_shared_and_separate_torsos() -> None:
    space = image(4, 36, 36)
    shared, apart = (actor_critic(space, share_trunk=share) for share in (True, False))
    assert shared.critic_torso is None
    assert apart.critic_torso is not None
    x = torch.from_numpy(draw(3, space))
    for net in (shared, apart):
        outputs, values = net(x)
        assert outputs.shape == (3, 3)
        assert values.shape == (3,)


def test_parts_give_what_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium_solver.nets.encoder.IMAGES_AT_ONCE", {"cpu": 4})
    space = image(1, 36, 36)
    net, x = actor_critic(space), torch.from_numpy(draw(10, space))
    whole = [t.detach().numpy() for t in net(x)]
    for part, all_at_once in zip(in_chunks(net, x, net.has_images), whole, strict=True):
        assert not part.requires_grad
        np.testing.assert_allclose(part.numpy(), all_at_once, atol=1e-6)


def test_normalised_images_keep_their_axes() -> None:
    space = image(6, 5, 3)
    encoder = image_encoder(space, normalize="rolling")
    obs = draw(700, space)
    assert not encoder.has_moments
    encoder.observe(obs)
    assert encoder.has_moments
    encoded = encoder(torch.from_numpy(obs))
    assert isinstance(encoded, dict)
    planes = encoded["image "].numpy()
    assert planes.shape == (700, 3, 6, 5)
    np.testing.assert_allclose(planes.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(planes.std(axis=0), 1.0, atol=1e-3)
    mean = obs.reshape(700, -1).mean(0) / 255
    normalizer = encoder.images[0].normalizer
    assert normalizer is not None
    np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-5)


def test_static_bounds_bring_images_to_one_around_zero() -> None:
    space = image(6, 5, 3)
    obs = draw(9, space)
    encoded = image_encoder(space, normalize="static")(torch.from_numpy(obs))
    assert isinstance(encoded, dict)
    expected = obs.transpose(0, 3, 1, 2) / 127.5 - 1
    np.testing.assert_allclose(encoded["image "].numpy(), expected, atol=1e-6)


def test_the_parts_of_a_dict_are_normalised_each_by_itself() -> None:
    space = spaces.Dict({"camera": image(6, 5, 3), "speed": spaces.Box(-9, 9, (2,), np.float32)})
    encoder = ObsEncoder(space, images=["camera"], normalize="rolling")
    speed = np.random.default_rng(1).normal(3, 2, (300, 2)).astype(np.float32)
    obs = {"camera": draw(300, image(6, 5, 3)), "speed": speed}
    encoder.observe(obs)
    encoded = encoder({name: torch.from_numpy(part) for name, part in obs.items()})
    assert isinstance(encoded, dict)
    for part in encoded.values():
        np.testing.assert_allclose(part.numpy().mean(axis=0), 0.0, atol=1e-4)
        np.testing.assert_allclose(part.numpy().std(axis=0), 1.0, atol=1e-3)


@pytest.mark.parametrize("noisy", [False, True])
def test_action_values_act_as_they_learn(noisy: bool) -> None:
    space = image(4, 36, 36)
    net = QNetwork(
        space,
        3,
        network_for(config(), space),
        dueling=True,
        generator=generator(),
        noisy_sigma=0.5 if noisy else None,
    )
    rng = np.random.default_rng(0)
    kind: Exploration = "noisy" if noisy else "greedy"
    policy = QPolicy(net, space, ACTIONS, rng, kind, record=False)
    obs = draw(5, space)
    with torch.no_grad():
        expected = net(torch.from_numpy(obs)).numpy()
    found, _ = policy._values(obs, {}, np.zeros(len(obs), bool))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if noisy:  # every env explores by a noise of its own
        same = np.repeat(obs[:1], 2, axis=0)
        one, two = policy._infer_noisy(same, net.q.row_noise(2, rng))
        assert not np.allclose(one, two, atol=1e-3)


@pytest.mark.parametrize("n_actions", [0, 2])
def test_actor_and_critics_of_images_have_features_of_their_own(n_actions: int) -> None:
    """Discrete actions: a value for each. Continuous: the action joins the critics' features."""
    space = image(4, 36, 36)
    nets = ActorCritics(
        space,
        network_for(config(), space),
        n_actor_outputs=3,
        n_critics=2,
        n_critic_actions=n_actions,
        n_values=0 if n_actions else 3,
        generator=generator(),
    )
    x = nets.encoder(torch.from_numpy(draw(5, space)))
    assert nets.actor(x).shape == (5, 3)
    own = [{id(p) for p in part.features.parameters()} for part in (nets.actor, nets.critic)]
    assert own[0]
    assert own[1]
    assert not own[0] & own[1]
    if not n_actions:
        assert nets.critic(x).shape == (2, 5, 3)
        return
    actions = torch.zeros(5, 2, requires_grad=True)
    values = nets.critic(x, actions)
    assert values.shape == (2, 5)
    (by_action,) = torch.autograd.grad(values.sum(), actions)
    assert by_action.abs().min() > 0


@pytest.mark.parametrize(
    "space",
    [
        image(4, 84, 84),
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Box(np.array([0, -1], np.float32), np.array([2, np.inf], np.float32)),
        spaces.Box(0, 1, (0,), np.float32),
    ],
    ids=str,
)
def test_spaces_come_back_from_json(space: spaces.Box) -> None:
    text = json.dumps(space_to_json(space))
    assert space_from_json(json.loads(text)) == space
    assert len(text) < 300  # an image's bounds are written once
