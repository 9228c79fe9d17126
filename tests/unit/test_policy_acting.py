"""The acting path: encodings, recorded acting against torch for every kind of network, act()."""

import copy
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.blocks import ACTIVATIONS
from gymnasium_solver.nets.encoder import LARGEST_ONE_HOT, ObsEncoder
from gymnasium_solver.nets.heads import CategoricalHead
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.actions import DiscreteActions, action_kind
from gymnasium_solver.spaces.observations import Obs, obs_len
from gymnasium_solver.tree import map_tree
from tests.acting import generator

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
BOUNDED = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
MLP = Network((7, 9), "tanh")
PARTS = spaces.Dict(
    [
        ("state", spaces.Box(-5, 5, (3,), np.float32)),
        ("goal", spaces.Discrete(4, start=2)),
        ("level", spaces.Box(0, 10, (), np.float32)),
        ("cells", spaces.MultiDiscrete([2, 3])),
        ("bits", spaces.MultiBinary((2, 2))),
        ("map", spaces.Box(0, 4, (3, 3), np.uint8)),
        ("word", spaces.Discrete(LARGEST_ONE_HOT + 1)),
    ]
)
SPACES: dict[str, Any] = {
    "vector": OBS,
    "discrete": spaces.Discrete(5, start=3),
    "multi discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi discrete matrix": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "multi binary": spaces.MultiBinary(6),
    "uint8": spaces.Box(0, 4, (7,), np.uint8),
    "image": IMAGE,
    "dict": PARTS,
    "large discrete": spaces.Discrete(LARGEST_ONE_HOT + 5, start=7),
}


def observations(space: Any, n: int, seed: int = 0) -> Obs:
    """n draws from a space, unbounded numbers far from zero."""
    space = copy.deepcopy(space)
    space.seed(seed)
    drawn = [space.sample() for _ in range(n)]
    if isinstance(space, spaces.Dict):
        return {name: np.stack([obs[name] for obs in drawn]) for name in space.spaces}
    return 3 * np.stack(drawn) + 2 if space is OBS else np.stack(drawn)


def net_for(obs: Any = OBS, actions: Any = BOUNDED, **options: Any) -> ActorCritic:
    g = generator()
    network = options.pop("network", MLP)
    net = ActorCritic(obs, action_kind(actions), network, generator=g, **options)
    # The head starts near zero, where every activation looks alike.
    for name in ("weight", "bias"):
        net.get_parameter(f"actor_head.{name}").data.normal_(generator=g)
    return net


def with_memory(kind: Any) -> Network:
    return MLP._replace(recurrence=Recurrence(kind, 8))


def policy_for(
    obs: Any = OBS, actions: Any = BOUNDED, record: bool = True, **options: Any
) -> ActorPolicy:
    net = net_for(obs, actions, **options)
    return ActorPolicy(net, obs, action_kind(actions), np.random.default_rng(0), record=record)


def first(n: int) -> np.ndarray:
    return np.ones(n, bool)


def check_recorded(
    function: Callable[..., Any], module: torch.nn.Module, space: Any, *more: Any
) -> Inference:
    """The recording is used, and gives at every batch size what torch gives."""
    infer = Inference(function, module, record=True)
    for n in (1, 2, 8, 61, 100):
        obs = observations(space, n, seed=n)
        given = [make(n) for make in more]
        before = map_tree(np.copy, obs)
        got = infer(obs, *given)
        with torch.no_grad():
            expected = function(map_tree(torch.as_tensor, obs), *map_tree(torch.as_tensor, given))
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)
        assert infer._program is not None, "this network should be recorded"
        assert obs_len(obs) == n
        for a, b in zip(_arrays(obs), _arrays(before), strict=True):
            np.testing.assert_array_equal(a, b, "acting wrote to its observations")
    return infer


def _arrays(obs: Any) -> list[np.ndarray]:
    return list(obs.values()) if isinstance(obs, dict) else [obs]


# -- recorded acting is what learning computes ------------------------------------------------


@pytest.mark.parametrize("hidden_dims", [(), (7,), (7, 9)], ids=str)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_acting_computes_what_learning_does(activation: str, hidden_dims: tuple[int, ...]) -> None:
    net = net_for(network=Network(hidden_dims, activation, normalize="rolling"))
    net.encoder.observe(observations(OBS, 100))
    check_recorded(net.actor, net, OBS)
    obs = torch.as_tensor(observations(OBS, 5))
    with torch.no_grad():
        torch.testing.assert_close(net(obs)[0], net.actor(obs))


@pytest.mark.sample(12)
@pytest.mark.parametrize("mode", [False, "rolling", "static"])
@pytest.mark.parametrize("name", SPACES)
def test_acting_reads_every_kind_of_observation(name: str, mode: Any) -> None:
    space = SPACES[name]
    net = net_for(space, spaces.Discrete(3), network=MLP._replace(normalize=mode))
    net.encoder.observe(observations(space, 100))
    check_recorded(net.actor, net, space)


@pytest.mark.sample(10)
@pytest.mark.parametrize("norm", [None, "layer", "rms"])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("n_atoms", [1, 7])
@pytest.mark.parametrize("noisy", [False, True])
def test_acting_by_values_of_every_kind(
    norm: Any, dueling: bool, n_atoms: int, noisy: bool
) -> None:
    head = CategoricalHead(n_atoms, -2, 5, "c51") if n_atoms > 1 else None
    net = QNetwork(
        PARTS, 3, MLP._replace(norm=norm, normalize="rolling"), dueling=dueling,
        noisy_sigma=0.5 if noisy else None, head=head, generator=generator(),
    )  # fmt: skip
    net.encoder.observe(observations(PARTS, 50))
    infer = check_recorded(net.q_values, net, PARTS)
    if not noisy:
        return
    rng = np.random.default_rng(0)
    check_recorded(net.q_values, net, PARTS, lambda n: net.q.row_noise(n, rng))
    # Noise that an update leaves in the layers is read where it is.
    obs = observations(PARTS, 4)
    quiet = infer(obs)
    net.q.resample(rng)
    with torch.no_grad():
        expected = net.q_values(map_tree(torch.as_tensor, obs)).numpy()
    np.testing.assert_allclose(infer(obs), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(infer(obs), quiet)


NETWORKS = [{}, {"norm": "renorm"}, {"norm": "layer"}, {"norm": "rms", "block": "simba"}]


@pytest.mark.parametrize("options", NETWORKS, ids=str)
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_acting_by_the_actor_of_an_actor_critics(options: dict[str, Any], activation: str) -> None:
    net = ActorCritics(
        PARTS, Network((7, 7), activation, normalize="rolling", **options), n_actor_outputs=4,
        n_critics=2, n_critic_actions=2, generator=generator(),
    )  # fmt: skip
    net.encoder.observe(observations(PARTS, 50))
    for name, buffer in net.actor.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2, generator=generator(1))
    infer = check_recorded(net.actor_outputs, net, PARTS)
    if options.get("norm") == "renorm":  # its moments are read where they are
        obs = observations(PARTS, 4)
        before = infer(obs)
        for name, buffer in net.actor.named_buffers():
            if "running_var" in name:
                buffer.mul_(3)
        with torch.no_grad():
            expected = net.actor_outputs(map_tree(torch.as_tensor, obs)).numpy()
        np.testing.assert_allclose(infer(obs), expected, rtol=1e-4, atol=1e-5)
        assert not np.allclose(infer(obs), before)


def test_acting_follows_weights_and_statistics_wherever_they_lie() -> None:
    net = net_for(network=MLP._replace(normalize="rolling"))
    infer = Inference(net.actor, net, record=True)
    obs = np.ones((2, 4), np.float32)

    def check() -> np.ndarray:
        got: np.ndarray = infer(obs)
        with torch.no_grad():
            expected = net.actor(torch.as_tensor(obs)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert infer._program is not None
        return got.copy()

    seen = [check()]
    for p in net.parameters():  # in place, as the optimiser does
        p.data.mul_(1.5)
    seen.append(check())
    for p in net.parameters():  # and moved in memory, as flattening does
        p.data = p.data.clone() * 0.5
    seen.append(check())
    net.encoder.observe(observations(OBS, 30))
    seen.append(check())
    for a, b in itertools.pairwise(seen):
        assert not np.allclose(a, b)


def test_what_cannot_be_recorded_acts_by_torch() -> None:
    """A decision on data: the recording would keep the first one for ever."""
    net = net_for()

    def function(obs: torch.Tensor) -> torch.Tensor:
        return net.actor(obs) if float(obs.sum()) > 0 else -net.actor(obs)

    infer = Inference(function, net, record=True)
    obs = np.asarray(observations(OBS, 6)) + 100
    np.testing.assert_allclose(infer(obs), net.actor(torch.as_tensor(obs)).detach().numpy())
    assert infer._program is None
    np.testing.assert_allclose(infer(-obs), -net.actor(torch.as_tensor(-obs)).detach().numpy())


def test_results_outlive_the_next_call() -> None:
    net = net_for()
    infer = Inference(net.actor, net, record=True)
    one = infer(observations(OBS, 8, seed=1))
    kept = one.copy()
    infer(observations(OBS, 8, seed=2))
    np.testing.assert_array_equal(one, kept)


@pytest.mark.parametrize("kind", ["actor", "q", "soft", "deterministic"])
def test_policies_draw_the_same_recorded_or_not(kind: str) -> None:
    drawn = []
    for record in (True, False):
        rng = np.random.default_rng(5)
        discrete = action_kind(spaces.Discrete(3))
        box = action_kind(BOUNDED)
        policy: Any
        if kind == "actor":
            policy = ActorPolicy(net_for(PARTS), PARTS, box, rng, record=record)
        elif kind == "q":
            assert isinstance(discrete, DiscreteActions)
            values = QNetwork(PARTS, 3, MLP, noisy_sigma=0.5, generator=generator())
            policy = QPolicy(values, PARTS, discrete, rng, "noisy", record=record)
        else:
            width = 4 if kind == "soft" else 2
            net = ActorCritics(
                PARTS, MLP, n_actor_outputs=width, n_critics=2, n_critic_actions=2,
                generator=generator(),
            )  # fmt: skip
            make = SoftPolicy if kind == "soft" else DeterministicPolicy
            policy = make(net, PARTS, box, rng, 0.85, record=record)
        carry, actions = policy.initial_carry(6), []
        for step in range(5):
            is_first = np.full(6, step == 0)
            acted = policy.sample(observations(PARTS, 6, seed=step), carry, is_first)
            carry = acted.carry
            actions += [acted.actions]
            actions += [policy.greedy(observations(PARTS, 6, seed=step), carry, is_first).actions]
        drawn.append(actions)
    for a, b in zip(*drawn, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# -- encodings ----------------------------------------------------------------------------------


def encoded(space: Any, obs: Any, **options: Any) -> Any:
    return ObsEncoder(space, **options)(map_tree(torch.as_tensor, obs))


@pytest.mark.parametrize("start", [0, 3])
def test_discrete_observations_are_one_hot(start: int) -> None:
    space = spaces.Discrete(5, start=start)
    net = net_for(space, spaces.Discrete(2), network=MLP._replace(normalize="rolling"))
    obs = np.arange(5) + start
    np.testing.assert_array_equal(net.encoder(torch.as_tensor(obs)).numpy(), np.eye(5))
    net.encoder.observe(obs)
    assert float(net.encoder.normalizer.count) == 0, "a one-hot is not normalised"


def test_multi_discrete_observations_are_one_hot_side_by_side() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 4])
    obs = np.array([[1, 4], [0, 6]])
    assert encoded(space, obs).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    matrix = spaces.MultiDiscrete(np.array([[2, 2], [1, 3]]))
    one = encoded(matrix, np.array([[[0, 1], [0, 2]]]))
    assert one.tolist() == [[1, 0, 0, 1, 1, 0, 0, 1]]


def test_the_parts_of_a_dict_are_joined_numbers_first() -> None:
    space = spaces.Dict(
        [
            ("goal", spaces.Discrete(3)),
            ("state", spaces.Box(-1, 1, (2,), np.float32)),
            ("level", spaces.Box(0, 10, (), np.float32)),
            ("bits", spaces.MultiBinary(2)),
        ]
    )
    obs = {
        "goal": np.array([2, 0]),
        "state": np.array([[0.5, -0.5], [0.25, 0]], np.float32),
        "level": np.array([7, 8], np.float32),
        "bits": np.array([[1, 0], [1, 1]], np.int8),
    }
    expected = [[0.5, -0.5, 7, 1, 0, 0, 0, 1], [0.25, 0, 8, 1, 1, 1, 0, 0]]
    assert encoded(space, obs).tolist() == expected
    shuffled = {name: obs[name] for name in reversed(obs)}
    assert encoded(space, shuffled).tolist() == expected
    encoder = ObsEncoder(space, normalize="rolling")
    encoder.observe(obs)
    np.testing.assert_allclose(encoder.normalizer.mean.numpy(), [0.375, -0.25, 7.5, 1, 0.5])
    static = encoded(space, obs, normalize="static")
    np.testing.assert_allclose(static[0].numpy(), [0.5, -0.5, 0.4, 1, -1, 0, 0, 1], atol=1e-6)


@pytest.mark.parametrize("mode", [False, "rolling", "static"])
def test_images_are_scaled_to_one_and_normalised_in_those_units(mode: Any) -> None:
    encoder = ObsEncoder(IMAGE, normalize=mode)
    obs = np.random.default_rng(0).integers(0, 256, (200, 6, 5, 3)).astype(np.uint8)
    encoder.observe(obs)
    pixels = obs.reshape(200, -1) / 255.0
    expected = {
        False: pixels,
        "rolling": (pixels - pixels.mean(0)) / pixels.std(0),
        "static": 2 * pixels - 1,
    }[mode]
    np.testing.assert_allclose(encoder(torch.as_tensor(obs)).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(0, 10), (0, 1), (3, 7), (0, 255)])
@pytest.mark.parametrize("is_image", [False, True])
def test_uint8_is_scaled_by_the_bounds_of_its_space(low: int, high: int, is_image: bool) -> None:
    """A grid of cell codes up to 10 divided by 255 is near zero everywhere."""
    space = spaces.Box(low, high, (3, 8, 8), np.uint8)
    obs = np.random.default_rng(0).integers(low, high + 1, (4, 3, 8, 8)).astype(np.uint8)
    expected = (obs - np.float64(low)) / (high - low)
    images = [""] if is_image else []
    x = encoded(space, obs, images=images)
    if is_image:
        assert x["image "].shape == (4, 3, 8, 8)
        np.testing.assert_allclose(x["image "].numpy(), expected, atol=1e-6)
    else:
        np.testing.assert_allclose(x.numpy(), expected.reshape(4, -1), atol=1e-6)
        static = encoded(space, obs, normalize="static").numpy()
        np.testing.assert_allclose(static, 2 * expected.reshape(4, -1) - 1, atol=1e-5)


def test_uint8_numbers_with_bounds_of_their_own() -> None:
    """One range for all would leave the flag at 1 / 255."""
    low, high = np.array([0, 0, 2], np.uint8), np.array([255, 1, 2], np.uint8)
    space = spaces.Box(low, high, dtype=np.uint8)
    obs = np.array([[255, 1, 2], [51, 0, 2]], np.uint8)
    np.testing.assert_allclose(
        encoded(space, obs).numpy(), [[1.0, 1.0, 0.0], [0.2, 0.0, 0.0]], atol=1e-6
    )
    static = encoded(space, obs, normalize="static").numpy()
    np.testing.assert_allclose(static[:, :2], [[1.0, 1.0], [-0.6, -1.0]], atol=1e-6)


def test_uint8_without_a_range_is_scaled_by_255() -> None:
    space = spaces.Box(5, 5, (2,), np.uint8)
    assert encoded(space, np.array([[255, 0]], np.uint8)).tolist() == [[1, 0]]


def test_the_one_hot_of_a_large_discrete_needs_no_square_table() -> None:
    """n x n floats of 1024 states are 4 MB that every pass would read."""
    for n in (LARGEST_ONE_HOT, 1_000_000):
        encoder = ObsEncoder(spaces.Discrete(n))
        held = sum(buffer.numel() for buffer in encoder.buffers())
        assert held <= 2 * LARGEST_ONE_HOT + 3
    net = net_for(spaces.Discrete(LARGEST_ONE_HOT), spaces.Discrete(2))
    infer = Inference(net.actor, net, record=True)
    obs = np.arange(8)
    infer(obs)
    start = time.perf_counter()
    for _ in range(100):
        infer(obs)
    assert time.perf_counter() - start < 1.0, "10 ms for 8 rows is far too slow"


def test_a_discrete_above_the_limit_is_embedded() -> None:
    small = net_for(spaces.Discrete(LARGEST_ONE_HOT), spaces.Discrete(2))
    assert len(small.actor_features.embeddings) == 0
    assert small.encoder.width == LARGEST_ONE_HOT
    n = LARGEST_ONE_HOT + 1
    large = net_for(spaces.Discrete(n, start=5), spaces.Discrete(2))
    table = large.get_parameter("actor_features.embeddings.0.weight")
    assert tuple(table.shape) == (n, large.actor_features.width)
    obs = torch.tensor([5, 5 + n - 1])
    encoded_obs = large.encoder(obs)
    assert isinstance(encoded_obs, dict)
    expected = table[[0, n - 1]]
    torch.testing.assert_close(large.actor_features(encoded_obs), expected)
    large.actor(obs).sum().backward()
    assert table.grad is not None
    touched = table.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == [0, n - 1], "a gradient reaches the rows that were looked up"


# -- act() ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obs_space", "action_space", "one", "action_shape"),
    [
        (OBS, BOUNDED, np.zeros(4), (2,)),
        (OBS, spaces.Discrete(3), np.zeros(4), ()),
        (spaces.Discrete(5), spaces.Discrete(3, start=7), np.int64(2), ()),
        (spaces.Discrete(5), BOUNDED, 2, (2,)),
        (IMAGE, spaces.Discrete(3), np.zeros((6, 5, 3), np.uint8), ()),
        (OBS, spaces.Box(-1, 1, (2, 3)), np.zeros(4, np.float32), (2, 3)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([4, 2]), np.array([1, 2]), (2,)),
        (OBS, spaces.MultiBinary(3), [0, 0, 0, 0], (3,)),
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
    policy.reset()
    batch = np.stack([np.asarray(one)] * 6)
    several = policy.act(batch, greedy=greedy)
    assert np.shape(several) == (6, *action_shape)
    assert all(action_space.contains(action) for action in several)
    if greedy:
        for action in several:
            np.testing.assert_allclose(action, single, rtol=1e-6)


@pytest.mark.parametrize("greedy", [True, False])
def test_dict_observations_and_dict_actions(greedy: bool) -> None:
    actions = spaces.Dict({"steer": spaces.Box(-1, 1, (2,)), "gear": spaces.Discrete(3, start=1)})
    nested = spaces.Dict(
        {"me": spaces.Dict({"x": OBS}), "them": spaces.Tuple([spaces.Discrete(3), OBS])}
    )
    flat = spaces.Dict([("me.x", OBS), ("them.0", spaces.Discrete(3)), ("them.1", OBS)])
    policy = policy_for(flat, actions)
    nested.seed(0)
    native = nested.sample()
    single = policy.act(native, greedy=greedy)
    assert actions.contains(single)
    policy.reset()
    by_name = {"me.x": native["me"]["x"], "them.0": native["them"][0], "them.1": native["them"][1]}
    again = policy.act(by_name, greedy=greedy)
    if greedy:
        np.testing.assert_array_equal(single["steer"], again["steer"])
    policy.reset()
    batch = {name: np.stack([part] * 4) for name, part in by_name.items()}
    several = policy.act(batch, greedy=greedy)
    assert batch_space(actions, 4).contains(several), "what a vectorised environment takes"


def test_a_mask_rules_actions_out() -> None:
    policy = policy_for(OBS, spaces.Discrete(3))
    obs = np.ones(4, np.float32)
    best = policy.act(obs)
    others = [a for a in range(3) if a != best]
    assert policy.act(obs, mask=[a in others for a in range(3)]) in others
    only = np.eye(3, dtype=bool)
    assert policy.act(np.ones((3, 4), np.float32), greedy=False, mask=only).tolist() == [0, 1, 2]


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


@pytest.mark.filterwarnings("error")
def test_a_recurrent_policy_keeps_its_carry_between_calls() -> None:
    options: dict[str, Any] = {"share_trunk": True, "network": with_memory("gru")}
    policy, other = (policy_for(**options) for _ in range(2))
    obs = observations(OBS, 5)
    assert isinstance(obs, np.ndarray)
    carry, actions = policy.initial_carry(1), []
    for i, row in enumerate(obs):
        acted = other.greedy(row[None], carry, np.array([i == 0]))
        carry = acted.carry
        actions.append(other.to_env(acted.actions)[0])
    by_act = [policy.act(row) for row in obs]
    np.testing.assert_allclose(by_act, actions, rtol=1e-5)
    policy.reset()
    np.testing.assert_allclose(policy.act(obs[0]), actions[0], rtol=1e-5)
    assert not np.allclose(policy.act(obs[0]), actions[0]), "it remembers the observation before"
    np.testing.assert_allclose(policy.act(obs[0], is_first=True), actions[0], rtol=1e-5)
    with pytest.raises(EnvError, match=r"got 2 observations after 1.*reset"):
        policy.act(obs[:2])


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn"])
def test_the_carry_starts_anew_where_an_episode_begins(kind: Any) -> None:
    policy = policy_for(share_trunk=True, network=with_memory(kind))
    obs = observations(OBS, 3)
    carry = {name: part + 1 for name, part in policy.initial_carry(3).items()}
    is_first = np.array([True, False, True])
    fresh = policy.greedy(obs, policy.initial_carry(3), first(3))
    acted = policy.greedy(obs, carry, is_first)
    for name in carry:
        same = (acted.carry[name] == fresh.carry[name]).all(axis=1)
        assert same.tolist() == is_first.tolist()
    assert np.isclose(acted.actions, fresh.actions).all(axis=1).tolist() == is_first.tolist()
