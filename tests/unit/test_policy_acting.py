"""The acting path: encodings, the NumPy actor against the torch one, action maps, act()."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.mlp import ACTIVATIONS
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.spaces import ActionMap, space_from_json, space_to_json

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
BOUNDED = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))


def net_for(obs: Any = OBS, actions: Any = BOUNDED, **options: Any) -> ActorCritic:
    generator = torch.Generator().manual_seed(0)
    net = ActorCritic(obs, actions, **{"hidden_dims": (7, 9), "generator": generator, **options})
    # The head starts near zero, where every activation looks alike.
    net.actor_head.weight.data.normal_(generator=generator)
    net.actor_head.bias.data.normal_(generator=generator)
    return net


def policy_for(obs: Any = OBS, actions: Any = BOUNDED, **options: Any) -> ActorPolicy:
    return ActorPolicy(net_for(obs, actions, **options), obs, actions, np.random.default_rng(0))


@pytest.mark.parametrize("hidden_dims", [(), (7,), (7, 9)], ids=str)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_acting_computes_what_learning_does(activation: str, hidden_dims: tuple[int, ...]) -> None:
    net = net_for(activation=activation, hidden_dims=hidden_dims, normalize_obs="rolling")
    rng = np.random.default_rng(0)
    net.observe(rng.normal(2, 3, (100, 4)).astype(np.float32))
    obs = rng.normal(2, 5, (32, 4)).astype(np.float32)
    with torch.no_grad():
        learning, _ = net(net.encode(torch.as_tensor(obs)))
    np.testing.assert_allclose(net.actor_outputs(obs), learning.numpy(), rtol=1e-4, atol=1e-5)


def test_acting_follows_the_weights_wherever_they_lie() -> None:
    net = net_for()
    obs = np.ones((2, 4), np.float32)
    before = net.actor_outputs(obs)
    for p in net.parameters():  # in place, as the optimiser does
        p.data.mul_(1.5)
    scaled = net.actor_outputs(obs)
    assert not np.allclose(before, scaled)
    for p in net.parameters():  # and moved in memory, as flattening does
        p.data = p.data.clone() * 0.5
    with torch.no_grad():
        expected = net.actor(net.encode(torch.as_tensor(obs))).numpy()
    np.testing.assert_allclose(net.actor_outputs(obs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [0, 3])
def test_discrete_observations_are_one_hot(start: int) -> None:
    space = spaces.Discrete(5, start=start)
    net = net_for(space, spaces.Discrete(2), normalize_obs="rolling")
    obs = np.arange(5) + start
    np.testing.assert_array_equal(net.encode_numpy(obs), np.eye(5))
    np.testing.assert_array_equal(net.encode(torch.as_tensor(obs)).numpy(), np.eye(5))
    net.observe(obs)
    assert float(net.normalizer.count) == 0, "a one-hot is normalised as it is"


@pytest.mark.parametrize("mode", [False, "rolling", "static"])
def test_images_are_scaled_to_one_and_normalised_in_those_units(mode: Any) -> None:
    net = net_for(IMAGE, spaces.Discrete(2), normalize_obs=mode)
    obs = np.random.default_rng(0).integers(0, 256, (200, 6, 5, 3)).astype(np.uint8)
    net.observe(obs)
    pixels = obs.reshape(200, -1) / 255.0
    expected = {
        False: pixels,
        "rolling": (pixels - pixels.mean(0)) / pixels.std(0),
        "static": 2 * pixels - 1,
    }[mode]
    np.testing.assert_allclose(net.encode_numpy(obs), expected, atol=1e-4)
    x = net.encode(torch.as_tensor(obs))
    assert x.dtype == torch.uint8, "an image is cast a minibatch at a time"
    np.testing.assert_allclose(net.cast(x).numpy(), expected, atol=1e-4)


def test_a_bounded_box_is_acted_on_between_minus_one_and_one() -> None:
    to_env = ActionMap(BOUNDED).to_env
    given = np.array([[-1, -1], [1, 1], [0, 0], [0.5, -0.5], [-9, 9]], np.float32)
    expected = np.array([[-2, 0], [2, 10], [0, 5], [1, 2.5], [-2, 10]])
    np.testing.assert_allclose(to_env(given), expected)
    assert all(BOUNDED.contains(action) for action in to_env(given))


def test_an_unbounded_box_is_acted_on_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for low in (-np.inf, 0.0):
            to_env = ActionMap(spaces.Box(low, np.inf, (2,), np.float32)).to_env
            np.testing.assert_array_equal(to_env(np.array([[-50.0, 7.0]])), [[-50, 7]])


def test_action_shapes_and_starts() -> None:
    matrix = spaces.Box(-1, 1, (2, 3), np.float32)
    assert ActionMap(matrix).to_env(np.zeros((5, 6), np.float32)).shape == (5, 2, 3)
    shifted = ActionMap(spaces.Discrete(3, start=-1)).to_env
    assert shifted(np.array([0, 1, 2])).tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("obs_space", "action_space", "one", "action_shape"),
    [
        (OBS, BOUNDED, np.zeros(4), (2,)),
        (OBS, spaces.Discrete(3), np.zeros(4), ()),
        (spaces.Discrete(5), spaces.Discrete(3, start=7), np.int64(2), ()),
        (spaces.Discrete(5), BOUNDED, 2, (2,)),
        (IMAGE, spaces.Discrete(3), np.zeros((6, 5, 3), np.uint8), ()),
        (OBS, spaces.Box(-1, 1, (2, 3)), np.zeros(4, np.float32), (2, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("greedy", [True, False])
def test_one_observation_or_a_batch(
    greedy: bool, obs_space: Any, action_space: Any, one: Any, action_shape: tuple[int, ...]
) -> None:
    policy = policy_for(obs_space, action_space)
    single = policy.act(one, greedy=greedy)
    assert np.shape(single) == action_shape
    assert action_space.contains(single)
    batch = np.stack([np.asarray(one)] * 6)
    several = policy.act(batch, greedy=greedy)
    assert np.shape(several) == (6, *action_shape)
    assert all(action_space.contains(action) for action in several)
    if greedy:
        for action in several:
            np.testing.assert_allclose(action, single, rtol=1e-6)


def test_greedy_is_repeatable_and_a_draw_is_not() -> None:
    policy = policy_for()
    obs = np.ones(4, np.float32)
    np.testing.assert_array_equal(policy.act(obs), policy.act(obs))
    draws = [policy.act(obs, greedy=False) for _ in range(5)]
    assert len({tuple(draw) for draw in draws}) > 1


@pytest.mark.parametrize("shape", [(3,), (5,), (2, 3), (2, 2, 4), ()])
def test_an_observation_of_another_shape_is_refused_in_words(shape: tuple[int, ...]) -> None:
    with pytest.raises(EnvError, match=r"shape .* takes \(4,\), or a batch"):
        policy_for().act(np.zeros(shape))


@pytest.mark.parametrize(
    "space",
    [
        OBS,
        BOUNDED,
        IMAGE,
        spaces.Discrete(4),
        spaces.Discrete(4, start=-2),
        spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([0.3, np.inf], np.float32)),
        spaces.Box(-1, 1, (2, 3)),
    ],
    ids=str,
)
def test_spaces_travel_as_json(space: Any) -> None:
    assert space_from_json(space_to_json(space)) == space


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.Dict({"a": OBS})], ids=str)
def test_unsupported_spaces_are_named(space: Any) -> None:
    for call in (
        lambda: net_for(obs=space),
        lambda: net_for(actions=space),
        lambda: space_to_json(space),
    ):
        with pytest.raises(EnvError, match=r"Box and Discrete|Discrete and Box"):
            call()
