"""Action kinds: log-probabilities and entropies against torch.distributions, draws against
probabilities, masks, and the way to the environment and back from JSON."""

import itertools
import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as td

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.spaces.action_dists import require_bounded_box, require_discrete
from gymnasium_solver.spaces.actions import (
    MASKED_LOGIT,
    BoxActions,
    ProductActions,
    action_kind,
    mask_outputs,
    mask_tensor,
)
from gymnasium_solver.spaces.space_types import space_from_json, space_to_json

BOUNDED = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
NESTED = spaces.Dict(
    [
        ("wheel", spaces.Box(-3, 1, (2,), np.float32)),
        ("gear", spaces.Discrete(4, start=-1)),
        ("arm", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(0, 4, (1, 2))])),
        ("lights", spaces.MultiBinary(3)),
    ]
)
KINDS = {
    "discrete": spaces.Discrete(5),
    "shifted": spaces.Discrete(3, start=-1),
    "box": BOUNDED,
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "multi discrete": spaces.MultiDiscrete([2, 3, 4]),
    "multi discrete matrix": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 2]]), start=np.array([[1, 0], [0, -1]])
    ),
    "multi binary": spaces.MultiBinary(4),
    "multi binary matrix": spaces.MultiBinary((2, 3)),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)]),
    "no box": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.MultiBinary(2)}),
    "nested": NESTED,
}


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def distribution(space: Any, outputs: Tensor, log_std: Tensor | None) -> list[tuple[Any, int]]:
    """torch's distributions of the leaves in order, each with the width of its stored actions."""
    if isinstance(space, spaces.Discrete):
        return [(td.Categorical(logits=outputs), 1)]
    if isinstance(space, spaces.Box):
        assert log_std is not None
        return [(td.Independent(td.Normal(outputs, log_std.exp()), 1), outputs.shape[1])]
    if isinstance(space, spaces.MultiDiscrete):
        logits = outputs.split(space.nvec.reshape(-1).tolist(), dim=1)
        return [(td.Categorical(logits=part), 1) for part in logits]
    if isinstance(space, spaces.MultiBinary):
        return [(td.Independent(td.Bernoulli(logits=outputs), 1), outputs.shape[1])]
    inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    found, at, at_std = [], 0, 0
    for part in inner:
        kind = action_kind(part)
        std = None if log_std is None else log_std[at_std : at_std + kind.n_log_std]
        found += distribution(part, outputs[:, at : at + kind.n_outputs], std)
        at, at_std = at + kind.n_outputs, at_std + kind.n_log_std
    return found


def reference(
    space: Any, outputs: Tensor, log_std: Tensor | None, actions: Tensor
) -> tuple[Tensor, Tensor]:
    columns = actions.reshape(len(actions), -1)
    log_prob, entropy, at = torch.zeros(len(actions)), torch.zeros(len(actions)), 0
    for each, width in distribution(space, outputs, log_std):
        part = columns[:, at : at + width]
        part = part[:, 0] if isinstance(each, td.Categorical) else part.float()
        log_prob, entropy = log_prob + each.log_prob(part), entropy + each.entropy()
        at += width
    assert at == columns.shape[1]
    return log_prob, entropy


def outputs_for(kind: Any, n: int, scale: float = 1.0) -> tuple[Tensor, Tensor | None]:
    log_std = normal(kind.n_log_std, seed=1) if kind.n_log_std else None
    return normal(n, kind.n_outputs, scale=scale), log_std


def as_numpy(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy()


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", KINDS)
def test_log_probabilities_and_entropies_are_torchs(name: str, scale: float) -> None:
    space = KINDS[name]
    kind = action_kind(space)
    outputs, log_std = outputs_for(kind, 64, scale)
    for actions in (
        kind.uniform(64, np.random.default_rng(0)),
        kind.sample(outputs.numpy(), as_numpy(log_std), np.random.default_rng(1)),
    ):
        assert actions.shape == (64, *kind.shape)
        assert actions.dtype == kind.dtype
        given = torch.as_tensor(actions)
        log_prob, entropy = kind.log_prob_entropy(outputs, log_std, given)
        expected = reference(space, outputs, log_std, given)
        torch.testing.assert_close(log_prob, expected[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(entropy.expand(64), expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_their_gradients_are_torchs(name: str) -> None:
    space = KINDS[name]
    kind = action_kind(space)
    outputs, log_std = outputs_for(kind, 8)
    actions = torch.as_tensor(kind.uniform(8, np.random.default_rng(0)))
    leaves = [x.requires_grad_() for x in (outputs, log_std) if x is not None]
    grads = []
    for log_prob, entropy in (
        kind.log_prob_entropy(outputs, log_std, actions),
        reference(space, outputs, log_std, actions),
    ):
        total = (log_prob + 0.3 * entropy).sum()
        if entropy.ndim == 0:
            total = (log_prob + 0.3 * entropy.expand(8)).sum()
        grads.append(torch.autograd.grad(total, leaves))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_categorical_does_not_depend_on_a_shift_and_survives_large_logits() -> None:
    kind = action_kind(spaces.Discrete(3))
    logits = torch.tensor([[1000.0, 999.0, -1000.0]])
    actions = torch.tensor([1])
    for a, b in zip(
        kind.log_prob_entropy(logits, None, actions),
        kind.log_prob_entropy(logits - 1000.0, None, actions),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
        assert torch.isfinite(a).all()


def test_bits_survive_large_logits() -> None:
    kind = action_kind(spaces.MultiBinary(3))
    logits = torch.tensor([[1000.0, -1000.0, 0.0]])
    log_prob, entropy = kind.log_prob_entropy(logits, None, torch.tensor([[1, 0, 1]]))
    assert float(log_prob) == pytest.approx(math.log(0.5))
    assert float(entropy) == pytest.approx(math.log(2))
    with np.errstate(over="raise", invalid="raise"):
        draws = kind.sample(np.tile(logits.numpy(), (500, 1)), None, np.random.default_rng(0))
    assert draws[:, :2].mean(0).tolist() == [1, 0]
    assert 0.4 < draws[:, 2].mean() < 0.6


# -- draws ----------------------------------------------------------------------------------------


def test_categorical_draws_as_often_as_it_says_and_each_row_by_itself() -> None:
    n, kind = 40_000, action_kind(spaces.Discrete(3))
    logits = np.tile(np.array([[0.0, 1.0, 2.0], [5.0, -5.0, 0.0]], np.float32), (n, 1))
    draws = kind.sample(logits, None, np.random.default_rng(0)).reshape(n, 2)
    for column in range(2):
        expected = torch.softmax(torch.as_tensor(logits[column]), 0).numpy()
        observed = np.bincount(draws[:, column], minlength=3) / n
        np.testing.assert_allclose(observed, expected, atol=5 * 0.5 / np.sqrt(n))
    # Independent rows: the joint frequency is the product.
    joint = np.mean((draws[:, 0] == 2) & (draws[:, 1] == 0))
    product = np.mean(draws[:, 0] == 2) * np.mean(draws[:, 1] == 0)
    assert abs(joint - product) < 0.01


@pytest.mark.parametrize("name", ["multi discrete", "multi binary", "no box", "shifted"])
def test_joint_frequencies_are_the_products_of_probabilities(name: str) -> None:
    space = KINDS[name]
    kind = action_kind(space)
    outputs, _ = outputs_for(kind, 1)
    n = 60_000
    draws = kind.sample(np.tile(outputs.numpy(), (n, 1)), None, np.random.default_rng(3))
    found = {tuple(np.atleast_1d(row).astype(int).tolist()) for row in draws}
    sizes = [draws.reshape(n, -1)[:, i].max() + 1 for i in range(draws.reshape(n, -1).shape[1])]
    every = list(itertools.product(*[range(int(size)) for size in sizes]))
    assert found <= set(every)
    for action in every:
        stored = np.array(action if kind.shape else action[0], kind.dtype)
        log_prob, _ = kind.log_prob_entropy(outputs, None, torch.as_tensor(stored)[None])
        share = np.mean((draws.reshape(n, -1) == stored).all(axis=1))
        assert share == pytest.approx(float(log_prob.exp()), abs=5 * 0.5 / np.sqrt(n)), action


@pytest.mark.parametrize("name", KINDS)
def test_drawn_actions_are_as_likely_as_torch_says(name: str) -> None:
    """The NumPy draw and the torch log-probability are of one and the same distribution."""
    kind = action_kind(KINDS[name])
    outputs, log_std = outputs_for(kind, 1)
    rows = outputs.expand(20_000, -1).contiguous()
    draws = kind.sample(rows.numpy(), as_numpy(log_std), np.random.default_rng(1))
    log_prob, entropy = kind.log_prob_entropy(rows, log_std, torch.as_tensor(draws))
    assert float(-log_prob.mean()) == pytest.approx(float(entropy.reshape(-1)[0]), abs=0.05)


@pytest.mark.parametrize("name", KINDS)
def test_no_draw_is_likelier_than_the_mode(name: str) -> None:
    kind = action_kind(KINDS[name])
    outputs, log_std = outputs_for(kind, 32)
    mode = torch.as_tensor(kind.mode(outputs.numpy()))
    assert mode.shape == (32, *kind.shape)
    highest, _ = kind.log_prob_entropy(outputs, log_std, mode)
    for seed in range(20):
        draws = kind.sample(outputs.numpy(), as_numpy(log_std), np.random.default_rng(seed))
        log_prob, _ = kind.log_prob_entropy(outputs, log_std, torch.as_tensor(draws))
        assert (log_prob <= highest + 1e-5).all()


@pytest.mark.parametrize("name", KINDS)
def test_draws_are_a_function_of_the_rng(name: str) -> None:
    kind = action_kind(KINDS[name])
    outputs, log_std = outputs_for(kind, 16)

    def draw(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [
            kind.sample(outputs.numpy(), as_numpy(log_std), rng),
            kind.uniform(16, rng),
        ]

    for a, b, c in zip(draw(1), draw(1), draw(2), strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()


# -- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["discrete", "shifted", "multi discrete", "multi discrete matrix"])
def test_illegal_actions_are_never_taken_and_cost_no_entropy(name: str) -> None:
    space: Any = KINDS[name]
    kind = action_kind(space)
    assert kind.n_mask == kind.n_outputs
    sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1)
    rng = np.random.default_rng(0)
    mask = rng.random((500, kind.n_mask)) < 0.5
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
    mask[:, starts] |= ~np.stack(
        [part.any(axis=1) for part in np.split(mask, starts[1:], axis=1)], axis=1
    )
    outputs = rng.normal(size=mask.shape).astype(np.float32)
    masked = mask_outputs(outputs, mask)
    rows = np.arange(500)[:, None]
    for actions in (
        kind.sample(masked, None, rng),
        kind.mode(masked),
        kind.uniform(500, rng, mask),
    ):
        columns = actions.reshape(500, -1) + starts
        assert mask[rows, columns].all()
    tensor = mask_tensor(torch.as_tensor(outputs), torch.as_tensor(mask))
    np.testing.assert_array_equal(tensor.numpy(), masked)
    chosen = torch.as_tensor(kind.mode(masked))
    log_prob, entropy = kind.log_prob_entropy(tensor, None, chosen)
    only = np.where(mask, outputs, -np.inf).astype(np.float32)  # as torch.distributions takes it
    expected = np.zeros(500)
    for part in np.split(only, starts[1:], axis=1):
        p = torch.softmax(torch.as_tensor(part), 1).double()
        expected -= (p * torch.where(p > 0, p, 1).log()).sum(1).numpy()
    np.testing.assert_allclose(entropy.numpy(), expected, atol=1e-5)
    assert torch.isfinite(log_prob).all()
    alone = np.zeros_like(mask)
    alone[:, starts] = True
    log_prob, entropy = kind.log_prob_entropy(
        mask_tensor(torch.as_tensor(outputs), torch.as_tensor(alone)), None, chosen * 0
    )
    assert log_prob.abs().max() < 1e-6
    assert entropy.abs().max() < 1e-6


def test_no_mask_leaves_the_outputs_as_they_are() -> None:
    outputs = np.ones((2, 3), np.float32)
    assert mask_outputs(outputs, None) is outputs
    tensor = torch.ones(2, 3)
    assert mask_tensor(tensor, None) is tensor
    assert mask_outputs(outputs, np.zeros((2, 3), bool)).tolist() == [[MASKED_LOGIT] * 3] * 2


@pytest.mark.parametrize("name", ["box", "multi binary", "tuple", "nested"])
def test_what_cannot_be_masked_says_so(name: str) -> None:
    assert action_kind(KINDS[name]).n_mask is None


# -- to the environment ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_every_action_is_one_of_the_environments(name: str) -> None:
    space = KINDS[name]
    kind = action_kind(space)
    outputs, log_std = outputs_for(kind, 200, scale=3.0)
    rng = np.random.default_rng(0)
    for actions in (
        kind.sample(outputs.numpy(), as_numpy(log_std), rng),
        kind.mode(outputs.numpy()),
        kind.uniform(200, rng),
    ):
        sent = kind.to_env(actions)
        assert isinstance(sent, np.ndarray)
        assert len(sent) == 200
        for row in sent:
            native = kind.to_native(row)
            assert space.contains(native), native


@pytest.mark.parametrize("name", KINDS)
def test_uniform_reaches_the_whole_space(name: str) -> None:
    space = KINDS[name]
    if name == "unbounded":
        draws = action_kind(space).uniform(20_000, np.random.default_rng(0))
        assert abs(float(draws.mean())) < 0.03
        assert float(draws.std()) == pytest.approx(1, abs=0.03)
        return
    kind = action_kind(space)
    sent = kind.to_env(kind.uniform(4000, np.random.default_rng(0)))
    natives = [kind.to_native(row) for row in sent]
    space.seed(0)
    theirs = [space.sample() for _ in range(4000)]
    for ours, expected in zip(_leaf_columns(natives), _leaf_columns(theirs), strict=True):
        np.testing.assert_allclose(ours.min(0), expected.min(0), atol=0.03)
        np.testing.assert_allclose(ours.max(0), expected.max(0), atol=0.03)
        spread = expected.std(0).max() + 0.1
        np.testing.assert_allclose(ours.mean(0), expected.mean(0), atol=0.1 * spread)


def _leaf_columns(natives: list[Any]) -> list[np.ndarray]:
    if isinstance(natives[0], dict):
        groups = [[native[key] for native in natives] for key in natives[0]]
    elif isinstance(natives[0], tuple):
        groups = [list(group) for group in zip(*natives, strict=True)]
    else:
        return [np.stack([np.asarray(x, np.float64) for x in natives]).reshape(len(natives), -1)]
    return [column for group in groups for column in _leaf_columns(group)]


def test_a_bounded_box_is_acted_on_between_minus_one_and_one() -> None:
    to_env = action_kind(BOUNDED).to_env
    given = np.array([[-1, -1], [1, 1], [0, 0], [0.5, -0.5], [-9, 9]], np.float32)
    expected = np.array([[-2, 0], [2, 10], [0, 5], [1, 2.5], [-2, 10]])
    np.testing.assert_allclose(to_env(given), expected)
    assert all(BOUNDED.contains(action) for action in to_env(given))


def test_an_unbounded_box_is_acted_on_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for low in (-np.inf, 0.0):
            kind = action_kind(spaces.Box(low, np.inf, (2,), np.float32))
            np.testing.assert_array_equal(kind.to_env(np.array([[-50.0, 7.0]])), [[-50, 7]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_limits_count_as_no_bounds(dtype: Any) -> None:
    """Some environments write the largest float where they mean infinity."""
    limit = np.finfo(dtype).max
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind = action_kind(spaces.Box(-limit, limit, (2,), dtype))
        assert isinstance(kind, BoxActions)
        assert not kind.is_bounded
        np.testing.assert_array_equal(kind.to_env(np.array([[-50.0, 7.0]])), [[-50, 7]])
        one = action_kind(
            spaces.Box(np.array([-1, 0], dtype), np.array([1, limit], dtype), dtype=dtype)
        )
        assert isinstance(one, BoxActions)
        assert not one.is_bounded
        large = action_kind(spaces.Box(-1e6, 1e6, (2,), np.float32))
        assert isinstance(large, BoxActions)
        assert large.is_bounded
    with pytest.raises(ConfigError, match="give it finite bounds"):
        require_bounded_box(spaces.Box(-limit, limit, (2,), dtype), "td3", "x")


def test_action_shapes_and_starts() -> None:
    assert action_kind(KINDS["matrix"]).to_env(np.zeros((5, 6), np.float32)).shape == (5, 2, 3)
    shifted = action_kind(KINDS["shifted"]).to_env
    assert shifted(np.array([0, 1, 2])).tolist() == [-1, 0, 1]
    multi = action_kind(KINDS["multi discrete matrix"]).to_env
    assert multi(np.array([[0, 1, 2, 1]])).tolist() == [[[1, 1], [2, 0]]]
    assert action_kind(KINDS["multi binary matrix"]).to_env(np.eye(6, dtype=int)).shape == (6, 2, 3)


def test_a_product_by_hand() -> None:
    kind = action_kind(NESTED)
    assert isinstance(kind, ProductActions)
    assert kind.shape == (2 + 1 + 2 + 2 + 3,)
    assert kind.n_outputs == 2 + 4 + 5 + 2 + 3
    assert kind.n_log_std == 4
    stored = np.array([[-1, 0.5, 3, 1, 2, 0, 1, 1, 0, 1]], np.float32)
    sent = kind.to_env(stored)
    assert sent.dtype == np.float64
    np.testing.assert_allclose(sent, [[-3, 0, 2, 1, 2, 2, 4, 1, 0, 1]])
    native = kind.to_native(sent[0])
    assert list(native) == ["wheel", "gear", "arm", "lights"]
    np.testing.assert_allclose(native["wheel"], [-3, 0])
    assert native["wheel"].dtype == np.float32
    assert native["gear"] == 2
    assert isinstance(native["gear"], np.int64)
    assert isinstance(native["arm"], tuple)
    assert native["arm"][0].tolist() == [1, 2]
    np.testing.assert_allclose(native["arm"][1], [[2, 4]])
    assert native["lights"].tolist() == [1, 0, 1]
    assert native["lights"].dtype == np.int8


@pytest.mark.parametrize("name", KINDS)
def test_zeros_to_store_actions_in(name: str) -> None:
    kind = action_kind(KINDS[name])
    store = kind.store((3, 2))
    assert store.shape == (3, 2, *kind.shape)
    store[0] = kind.uniform(2, np.random.default_rng(0))
    assert store.dtype == kind.dtype


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Tuple([spaces.Discrete(2), spaces.Text(3)])], ids=str
)
def test_spaces_without_a_distribution_are_named(space: Any) -> None:
    with pytest.raises(EnvError, match=r"actions of type Text .*Supported: Discrete, Box"):
        action_kind(space)


@pytest.mark.parametrize(
    ("require", "space", "problem"),
    [
        (require_discrete, BOUNDED, "needs Discrete .*; use ppo, sac or td3"),
        (require_discrete, KINDS["multi discrete"], "needs Discrete .*; use ppo or reinforce"),
        (require_bounded_box, spaces.Discrete(3), "needs continuous .*; use dqn, ppo or sac"),
        (require_bounded_box, NESTED, "needs continuous .*; use ppo or reinforce"),
    ],
)
def test_what_an_algorithm_needs(require: Any, space: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"some_algo {problem}"):
        require(space, "some_algo", "x")
    assert require_discrete(spaces.Discrete(3), "dqn", "x").n == 3
    assert require_bounded_box(BOUNDED, "td3", "x").width == 2


# -- JSON ------------------------------------------------------------------------------------------


OTHERS = {
    "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
    "half bounded": spaces.Box(
        np.array([-np.inf, 0.1], np.float32), np.array([0.3, np.inf], np.float32)
    ),
    "float64": spaces.Box(-0.1, 0.1, (2,), np.float64),
    "scalar": spaces.Box(0, 1, (), np.float32),
    "order": spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    "float limits": spaces.Box(
        -np.finfo(np.float32).max, np.finfo(np.float32).max, (2,), np.float32
    ),
}


@pytest.mark.parametrize("name", [*KINDS, *OTHERS])
def test_spaces_travel_as_json(name: str) -> None:
    space: Any = {**KINDS, **OTHERS}[name]
    again = space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))
    assert again == space
    assert again.dtype == space.dtype
    if isinstance(space, spaces.Dict):
        assert isinstance(again, spaces.Dict)
        assert list(again.spaces) == list(space.spaces), "the order decides where parts are"
    if name in KINDS:
        ours, theirs = action_kind(space), action_kind(again)
        actions = ours.uniform(5, np.random.default_rng(0))
        np.testing.assert_array_equal(ours.to_env(actions), theirs.to_env(actions))


def test_a_space_that_cannot_be_saved_is_named() -> None:
    with pytest.raises(EnvError, match="type Text cannot be saved"):
        space_to_json(spaces.Text(4))
    with pytest.raises(EnvError, match="unknown kind 'Torus'"):
        space_from_json({"kind": "Torus"})
