"""ReLU and its derivative inside matrix products."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.kernels import Matmul
from gymnasium_solver.fast.native.program import NativeGradient

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(x: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
    return torch.relu(x @ hidden) @ last


def both(x: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
    """What the ReLU reads is read by something else too, so it must stay."""
    before = x @ hidden
    return torch.relu(before) @ last + before.sum(1, keepdim=True)


def more(x: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
    """The loop does more than the ReLU."""
    return (torch.relu(x @ hidden) * 2 + 1) @ last


def leaky(x: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
    return nn.functional.leaky_relu(x @ hidden) @ last


def compiled(forward: Forward, n: int, width: int) -> tuple[NativeGradient, list[Tensor], Tensor]:
    g = torch.Generator().manual_seed(n)
    x = torch.randn(n, 6, generator=g)
    params = [torch.randn(6, width, generator=g), torch.randn(width, 3, generator=g)]
    for p in params:
        p.requires_grad_()

    def loss(batch: Sequence[Tensor], c: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return forward(batch[0], *params).square().mean(), []

    found = recorded.record_gradient(loss, params, [x], (), form="compiled")
    assert isinstance(found, NativeGradient)
    return found, recorded.eager(loss, params, [x], ()), x


@pytest.mark.sample(5)
@pytest.mark.parametrize("width", [5, 64])
@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize(("forward", "n_gates"), [(plain, 2), (both, 0), (more, 0), (leaky, 0)])
def test_gates_of_products(forward: Forward, n_gates: int, n: int, width: int) -> None:
    native, expected, x = compiled(forward, n, width)
    torch.testing.assert_close(native([x], ())[0], expected[0], rtol=1e-4, atol=1e-5)
    kernels = [k for section in native.program.lowered.sections for k in section.kernels]
    gated = [k for k in kernels if isinstance(k, Matmul) and k.gate is not None]
    assert len(gated) == n_gates
