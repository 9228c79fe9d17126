"""Parts of a stack are computed in their places; the steps of a sequence are one function."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.emit import emit
from gymnasium_solver.fast.native.kernels import Matmul
from gymnasium_solver.fast.native.lower import input_metas, lower
from gymnasium_solver.fast.native.program import NativeGradient
from gymnasium_solver.fast.tape import generalise, simplified, write
from gymnasium_solver.nets.recurrent import Recurrence, RecurrentCore

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
KINDS = ["gru", "lstm", "rnn"]


def products(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    return torch.stack([x @ one, x @ two])


def read_before(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Each part depends on the one before it."""
    first = torch.tanh(x @ one)
    second = torch.tanh(first @ two)
    return torch.stack([first, second, first @ two + second])


def twice(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """One part has two places: it can be computed in one of them only."""
    first = x @ one
    return torch.stack([first, first @ two, first])


def nested(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    inner = [torch.stack([x @ one, x @ two]), torch.stack([x @ two, x @ two @ two])]
    return torch.stack(inner).flatten(0, 1)


def gated(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """A ReLU reads the product: the stack needs what is before it."""
    first = x @ one
    return torch.stack([first, torch.relu(first) @ two])


def last_dimension(x: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Parts that are not contiguous in the stack are copied."""
    return torch.stack([x @ one, x @ two], -1).permute(2, 0, 1)


FORWARDS: list[tuple[Forward, int]] = [
    (products, 2), (read_before, 0), (twice, 2), (nested, 3), (gated, 2), (last_dimension, 0),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "n_placed"), FORWARDS)
def test_parts_of_a_stack(forward: Forward, n_placed: int) -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(40, 5, generator=g)
    params = [torch.randn(5, 5, generator=g).requires_grad_() for _ in range(2)]

    def loss(batch: Sequence[Tensor], c: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        outputs = forward(batch[0], *params)
        return (outputs[:-1] * outputs[1:].square()).mean(), []

    found = recorded.record_gradient(loss, params, [x], (), form="compiled")
    assert isinstance(found, NativeGradient)
    for n in (3, 40):
        expected = recorded.eager(loss, params, [x[:n]], ())
        torch.testing.assert_close(found([x[:n]], ())[0], expected[0], rtol=1e-4, atol=1e-5)
    sections = found.program.lowered.sections
    outs = [k.out for s in sections for k in s.kernels if isinstance(k, Matmul) and s.by_rows]
    placed = [out for out in outs if out.storage.size.n > 5 and out.storage.place != "sums"]
    assert len(placed) == n_placed


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_a_sequence_share_their_functions(kind: Any) -> None:
    core = RecurrentCore(Recurrence(kind, 4), 3, torch.Generator().manual_seed(1))

    def loss(batch: Sequence[Tensor], c: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        outputs, _ = core(*batch)
        return outputs.square().mean(), []

    counts = []
    params = list(core.parameters())
    for n_rows in (6, 12):
        batch = [
            torch.zeros(9, n_rows, 3),
            torch.zeros(9, core.carry_width),
            torch.zeros(9, n_rows, dtype=torch.bool),
        ]
        sizes = recorded.PROBE_SIZES
        given = {"p": params, "k": [], "c": []}
        one, two = (write(loss, given | {"b": recorded.resized(batch, n)}) for n in sizes)
        tape = simplified(generalise(one, two, sizes), ())
        lowered = lower(tape, input_metas(params, [], batch, 0), len(params))
        counts.append(emit(lowered).text.count("void kernel_"))
    assert counts[0] == counts[1]
