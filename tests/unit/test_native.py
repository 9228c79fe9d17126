"""Compiled programs give torch's results, the same bits for any number of threads."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native import build
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.program import NativeGradient, set_threads
from gymnasium_solver.fast.optimizer import FLAT_KINDS, FlatOptimizer
from gymnasium_solver.nets.heads import ScalarHead
from tests.optimizers import flat_optimizer
from tests.unit.test_recorded_losses import HIDDEN, N_ACTIONS, OPERATIONS, WIDTH, columns

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

NO_C_FORM = {
    "max over a dim", "amax over two dims", "batch statistics", "an unbiased deviation",
    "huber", "smooth_l1, mean, beta", "gelu, silu, elu", "an outer product", "a stacked product",
    "rows by index",
}  # fmt: skip
MORE = {
    "tanh": lambda h, b: h.tanh().square().mean(),
    "leaky relu": lambda h, b: (torch.nn.functional.leaky_relu(h, 0.2) * b[4]).mean(),
    "elu and silu": lambda h, b: (
        torch.nn.functional.elu(h) * torch.nn.functional.silu(h)
    ).mean(),
    "softmax": lambda h, b: (torch.softmax(h, 1) * b[4]).mean(),
    "a mean over the batch, read again": lambda h, b: (h - h.mean()).abs().mean(),
    "a weighted mean": lambda h, b: (h.sum(1) * b[3]).sum() / b[2].float().sum().clamp(min=1.0),
    "the taken action": lambda h, b: h.gather(1, b[1].unsqueeze(1)).square().mean(),
    "the best legal action": lambda h, b: h.gather(
        1, h.masked_fill(~b[2], -torch.inf).argmax(1, keepdim=True)
    ).mean(),
    "sequences": lambda h, b: (
        h.view(-1, 1, N_ACTIONS).expand(-1, 3, -1).transpose(0, 1).flatten(0, 1).tanh().sum(1)
    ).square().mean(),
    "two batches normalised together": lambda h, b: _together(h, b[4]),
    "a batch beside another, and without it": lambda h, b: (
        torch.cat([h, b[4], h.tanh()])[len(h):2 * len(h)] * torch.cat([h.exp(), b[4]])[:len(h)]
    ).mean(),
    "a third batch in the middle": lambda h, b: torch.cat([b[4], h, b[4]], 0).relu().mean(0).sum(),
    "padded": lambda h, b: torch.nn.functional.pad(h, (2, 1), value=3.0).square().mean(),
    "cut": lambda h, b: torch.nn.functional.pad(h, (-1, -2)).square().mean(),
}  # fmt: skip


def _together(h: Tensor, other: Tensor) -> Tensor:
    """As the critics of CrossQ, in two passes over the samples: first the mean of both."""
    both = torch.cat([h, h.tanh() * other]).expand(2, -1, -1)
    centred = both - both.mean(dim=-2, keepdim=True)
    y = centred * (centred.square().mean(dim=-2, keepdim=True) + 1e-3).rsqrt()
    now, later = y.tensor_split(2, dim=1)
    return ((now - later.detach()).square() * other).mean()


CASES = {name: op for name, op in {**OPERATIONS, **MORE}.items() if name not in NO_C_FORM}


@pytest.fixture(
    scope="module",
    params=["-O0", pytest.param("-O2", marks=pytest.mark.slow)],
)
def everything(request: pytest.FixtureRequest) -> Any:
    """One program of all operations, each with weights of its own. Compiling so long a text takes
    seconds, with the flags of real programs more than ten."""
    g = torch.Generator().manual_seed(1)
    shapes = {"first": (WIDTH, 12), "second": (12, N_ACTIONS)}
    shared = {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}
    own = {name: 1 + 0.1 * torch.randn(N_ACTIONS, generator=g) for name in CASES}
    params = [p.requires_grad_() for p in (*shared.values(), *own.values())]

    def loss(batch: Any, coefficients: Any) -> tuple[Tensor, list[Tensor]]:
        h = (batch[0] @ shared["first"]).tanh() @ shared["second"]
        values = [op(h * own[name], batch) for name, op in CASES.items()]
        return torch.stack(values).sum(), [v.detach() for v in values]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "PROGRAM_FLAGS", [request.param, *build.PROGRAM_FLAGS[1:]])
        gradient = recorded.record_gradient(loss, params, columns(64), (), form="compiled")
    assert isinstance(gradient, NativeGradient)
    return loss, params, gradient


def close(got: Tensor, wanted: Tensor, name: str) -> None:
    torch.testing.assert_close(
        got, wanted, rtol=1e-3, atol=2e-5, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 300])
def test_every_operation_agrees_with_torch(everything: Any, n: int) -> None:
    loss, params, gradient = everything
    batch = columns(n, seed=n)
    before = [column.clone() for column in batch]
    wanted, *values = recorded.eager(loss, params, batch, ())
    got, *outputs = gradient(batch, ())
    sizes = [sum(p.numel() for p in params[:2]), *(p.numel() for p in params[2:])]
    names = ["the shared layers", *CASES]
    for name, a, b in zip(names, got.split(sizes), wanted.split(sizes), strict=True):
        close(a, b, name)
    for name, a, b in zip(CASES, outputs, values, strict=True):
        close(a, b, name)
    assert all(map(torch.equal, batch, before)), "the program wrote to its inputs"


@pytest.mark.parametrize("n", [5, 64, 257])
def test_the_same_bits_for_any_number_of_threads(everything: Any, n: int) -> None:
    *_, gradient = everything
    batch, found = columns(n, seed=n), []
    for threads in (1, 2, 3, 1):
        before = set_threads(threads)
        for _ in range(5):
            found.append([part.clone() for part in gradient(batch, ())])
        set_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, other, found[0]))


def test_nan_in_the_batch_reaches_the_gradient(everything: Any) -> None:
    *_, gradient = everything
    batch = columns(64)
    batch[0][13, 2] = torch.nan
    grad, *outputs = gradient(batch, ())
    names = list(CASES)
    assert not torch.isfinite(grad).all()
    assert [names[i] for i, value in enumerate(outputs) if torch.isfinite(value)] == []


def test_outputs_outlive_the_next_call(everything: Any) -> None:
    *_, gradient = everything
    _, *first = gradient(columns(64), ())
    kept = [part.clone() for part in first]
    gradient(columns(64, seed=9), ())
    assert all(map(torch.equal, first, kept))


@pytest.mark.optimized
def test_stacked_networks_targets_and_rows_as_outputs() -> None:
    """As the critics of SAC, with a coefficient and the errors of each sample."""
    g = torch.Generator().manual_seed(0)
    shapes = [(2, WIDTH, HIDDEN), (2, 1, HIDDEN), (2, HIDDEN, 1), (2, 1, 1)]
    params = [(torch.randn(s, generator=g) * 0.3).requires_grad_() for s in shapes]
    target = [p.detach() * 0.9 for p in params]

    def critic(weights: list[Tensor], x: Tensor) -> Tensor:
        x = x.expand(2, -1, -1)
        hidden = torch.relu(torch.baddbmm(weights[1], x, weights[0]))
        return torch.baddbmm(weights[3], hidden, weights[2]).squeeze(2)

    def loss(batch: Any, c: Any) -> tuple[Tensor, list[Tensor]]:
        x, _, _, reward, _ = batch
        with torch.no_grad():
            wanted = reward + c[0] * critic(target, -x).amin(0)
        total, mean, error = ScalarHead().critics_loss(critic(params, x), wanted, reward.abs())
        return total, [total, mean, error]

    gradient = recorded.record_gradient(loss, params, columns(64), [0.9], target, form="compiled")
    assert isinstance(gradient, NativeGradient)
    for n in (3, 100):
        batch = columns(n, seed=n)
        wanted = recorded.eager(loss, params, batch, [0.7])
        for a, b in zip(gradient(batch, [0.7]), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", FLAT_KINDS)
def test_optimisers_agree_with_their_torch_form(everything: Any, kind: Any) -> None:
    *_, gradient = everything
    options: dict[str, Any] = {
        "weight_decay": 0.01, "max_grad_norm": 0.5, "max_grad_value": 0.3, "momentum": 0.9,
    }  # fmt: skip
    found = []
    for is_native in (True, False):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            optimizer = flat_optimizer(torch.nn.Linear(7, 5), kind, **options)
        optimizer.native = gradient.optimizer if is_native else None
        g = torch.Generator().manual_seed(1)
        norms = [optimizer.step(torch.randn(40, generator=g), 1e-2).item() for _ in range(5)]
        found.append((torch.tensor(norms), optimizer.flat, *optimizer.state().values()))
    close = 1e-4 if kind == "laprop" else 1e-5  # its mean magnifies rounding
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close / 10)


def test_a_pass_over_minibatches_is_one_step_after_another() -> None:
    """The same bits, and it stops before a part whose output exceeds the limit."""
    batch = columns(100)
    rng = np.random.default_rng(0)
    parts: list[Any] = np.array_split(rng.permutation(100), 3)

    def made() -> tuple[FlatOptimizer, NativeGradient]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = torch.nn.Linear(WIDTH, N_ACTIONS)
        optimizer = flat_optimizer(net, "adam", max_grad_norm=0.5)

        def loss(given: Any, c: Any) -> tuple[Tensor, list[Tensor]]:
            error = (net(given[0]) * c[0] - given[4]).square().mean()
            return error, [given[3].mean()]

        gradient = recorded.record_gradient(loss, optimizer.params, batch, [0.5], form="compiled")
        assert isinstance(gradient, NativeGradient)
        optimizer.native = gradient.optimizer
        return optimizer, gradient

    optimizer, gradient = made()
    norms, means = [], []
    for rows in parts:
        index = torch.from_numpy(rows)
        grad, mean = gradient([column[index] for column in batch], [0.5])
        norms.append(optimizer.step(grad, 1e-2))
        means.append(float(mean))
    other, again = made()
    assert torch.equal(again.descend(batch, parts, [0.5], other, 1e-2)[1], torch.stack(norms))
    assert torch.equal(other.flat, optimizer.flat)
    assert other.n_steps == 3
    limit = sorted(means)[1] + 1e-4
    last, third = made()
    _, done = third.descend(batch, parts, [0.5], last, 1e-2, (0, limit))
    assert len(done) == last.n_steps == next(i for i, m in enumerate(means) if m > limit)


@pytest.mark.optimized
def test_functions_are_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few units in the last place of float32, over the whole range, and for special values."""
    x = torch.cat(
        [
            torch.linspace(-105, 95, 20_001),
            torch.linspace(-1e-3, 1e-3, 1001),
            torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e30, -1e30]),
        ]
    )
    functions = (torch.exp, torch.tanh, torch.sigmoid, torch.log, torch.nn.functional.softplus)
    scale = torch.ones(1, requires_grad=True)

    def loss(batch: Any, coefficients: Any) -> tuple[Tensor, list[Tensor]]:
        (given,) = batch
        return (scale * given).sum(), [f(given) for f in functions] + [given.abs().log1p()]

    monkeypatch.setattr(recorded, "is_proven", lambda library: True)  # its outputs are not finite
    gradient = recorded.record_gradient(loss, [scale], [x], (), form="compiled", check=False)
    assert isinstance(gradient, NativeGradient)
    _, *found = gradient([x], ())
    exact = [f(x.double()) for f in functions] + [x.double().abs().log1p()]
    for function, got, wanted in zip([*functions, torch.log1p], found, exact, strict=True):
        normal = wanted.abs().gt(1.2e-38) | wanted.eq(0) | wanted.isnan()
        torch.testing.assert_close(
            got[normal],
            wanted.float()[normal],
            rtol=6e-7,
            atol=2e-38,
            equal_nan=True,
            msg=f"{function.__name__} is not accurate",
        )
