"""The same loss or network of several learners, as one program over their weights [S, P].

    lanes = Lanes({"gradient": Gradients(), "inference": Inferences()})      # lanes.py

A loss is written for one learner. Here it runs under `torch.func.vmap` with the weights, the
constants and the coefficients of S learners in place of its own, and `LossGradient` treats the
result like any other loss: recorded as NumPy on a CPU, a CUDA graph on a GPU. The sum of S
independent losses has as its gradient the S gradients.

A recorded program does to each row of the stack what the program of one learner does: NumPy
multiplies a stack of matrices one by one, and reduces rows one by one. So on a CPU the results are
those of the learner alone, bit for bit. What `vmap` writes in other operations (nn.LayerNorm) is
found out at the first calls, and computed alone.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gymnasium_solver import tree
from gymnasium_solver.fast.forward import Inference, are_close
from gymnasium_solver.fast.recorded import LossGradient, eager

# Gradients in one program on a CPU: of fewer learners, calls cost as much as they save; of more,
# arithmetic outweighs the calls.
CPU_STACK = range(6, 17)
N_COMPARED = 3  # first calls of a program, whose results are compared with those alone
CANNOT_BE_STACKED = RuntimeError, TypeError, ValueError, AssertionError  # each computes its own


class _Replaced(TorchFunctionMode):
    """Within it, torch functions see other tensors in place of the given ones."""

    def __init__(self, given: Sequence[Tensor], instead: Sequence[Tensor]) -> None:
        super().__init__()
        self._table = {id(a): b for a, b in zip(given, instead, strict=True)}

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = {name: self._other(value) for name, value in (kwargs or {}).items()}
        return func(*[self._other(value) for value in args], **kwargs)

    def _other(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._other(v) for v in value)
        return self._table.get(id(value), value) if isinstance(value, Tensor) else value


class Rows:
    """The tensors of S learners, each kind in one array [S, ...] at a fixed place."""

    def __init__(self, tensors: Sequence[Tensor], n: int) -> None:
        self.places = [torch.empty((n, *t.shape), dtype=t.dtype, device=t.device) for t in tensors]

    @torch.no_grad()
    def fill(self, learners: Sequence[Sequence[Tensor]]) -> None:
        for place, *rows in zip(self.places, *learners, strict=True):
            torch.stack(rows, out=place)


def flat_of(params: Sequence[Tensor]) -> Tensor | None:
    """The vector that these parameters are consecutive views of (fast/optimizer.py), if any."""
    at = params[0].data_ptr()
    for p in params:
        if p.data_ptr() != at or not p.is_contiguous() or p.dtype != params[0].dtype:
            return None
        at += p.numel() * p.element_size()
    size = sum(p.numel() for p in params)
    first = params[0].detach()
    try:
        return first.as_strided((size,), (1,), first.storage_offset())
    except RuntimeError:  # they lie side by side by chance, in storages of their own
        return None


def _split(row: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    parts = row.split([p.numel() for p in params])
    return [part.view(p.shape) for part, p in zip(parts, params, strict=True)]


def _chunks(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Parts of nearly equal sizes, at most `most`."""
    n_parts = -(-len(items) // most)
    start = 0
    for i in range(n_parts):
        stop = start + (len(items) - start) // (n_parts - i)
        yield items[start:stop]
        start = stop


def _shapes(data: Any) -> Hashable:
    return tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in tree.leaves_of(data))


# -- gradients ----------------------------------------------------------------------------------


def stacked_loss(
    one: LossGradient,
    structure: tree.Structure,
    weights: Tensor,
    constants: Sequence[Tensor],
    coefficients: Sequence[Tensor],
    columns: Sequence[Tensor],
    axis: int,
) -> tuple[Tensor, list[Tensor]]:
    """The sum of the losses of S learners, and their further outputs [S, ...]. `one`: of one of the
    learners; `axis`: that of the learners in the columns of the batch."""

    def loss(
        row: Tensor, constants: Sequence[Tensor], given: Sequence[Tensor], *own: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        instead = [*_split(row, one.params), *constants]
        with _Replaced([*one.params, *one.constants], instead):
            total, outputs = one.loss(tree.unflatten(structure, own), given)
        return total, tuple(outputs)

    totals, outputs = torch.func.vmap(loss, in_dims=(0, 0, 0, *[axis] * len(columns)))(
        weights, constants, coefficients, *columns
    )
    return totals.sum(), list(outputs)


class _StackedGradient:
    """d loss / d weights [S, P] of S learners."""

    def __init__(self, gradient: LossGradient, n_coefficients: int, n: int) -> None:
        """`gradient`: of one of the learners."""
        self.one = gradient
        weights = flat_of(gradient.params)
        assert weights is not None
        self._weights = Rows([weights], n)
        self._constants = Rows(gradient.constants, n)
        like = torch.empty(n_coefficients, device=weights.device)
        self._coefficients = Rows(like.unbind(), n)
        self._last: list[list[float]] | None = None
        self._structure: tree.Structure = None
        self._flats: dict[int, Tensor] = {}  # by the id of the gradient
        self.gradient = LossGradient(
            self._loss,
            [self._weights.places[0].requires_grad_()],
            record=True,
            constants=[*self._constants.places, *self._coefficients.places],
        )
        self.gradient.resume(gradient.mode)

    def _loss(self, batch: Any, coefficients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Batch columns are [B, S, ...]."""
        numbers = self._constants.places, self._coefficients.places
        given = self._weights.places[0], *numbers, tree.leaves_of(batch)
        return stacked_loss(self.one, self._structure, *given, axis=1)

    def __call__(self, items: Sequence["GradientItem"]) -> list[list[Tensor]]:
        gradients, batches, coefficients = zip(*items, strict=True)
        self._fill(gradients, coefficients)
        if self._structure is None:
            self._structure = tree.structure_of(batches[0])
        leaves = zip(*(tree.leaves_of(batch) for batch in batches), strict=True)
        columns = [torch.stack(column).transpose(0, 1) for column in leaves]
        flat, *outputs = self.gradient(columns, [])
        rows = flat.view(len(items), -1).clone()
        return [[row, *(o[i] for o in outputs)] for i, row in enumerate(rows)]

    @torch.no_grad()
    def _fill(
        self, gradients: Sequence[LossGradient], coefficients: Sequence[Sequence[float]]
    ) -> None:
        rows = [self._flat(gradient) for gradient in gradients]
        torch.stack(rows, out=self._weights.places[0].detach())
        self._constants.fill([gradient.constants for gradient in gradients])
        numbers = [list(given) for given in zip(*coefficients, strict=True)]
        if numbers != self._last:  # an upload, on a GPU
            self._last = numbers
            for place, values in zip(self._coefficients.places, numbers, strict=True):
                place.copy_(torch.tensor(values))

    def _flat(self, gradient: LossGradient) -> Tensor:
        """The weights of a learner as one vector; they stay where they are."""
        flat = self._flats.get(id(gradient))
        if flat is None:
            flat = flat_of(gradient.params)
            assert flat is not None
            self._flats[id(gradient)] = flat
        return flat


GradientItem = tuple[LossGradient, Any, Sequence[float]]


class _Joint:
    """Joint work of lanes: one program for items (what computes it alone, its arguments), if its
    first results are those of each item alone. NumPy adds up in another order where memory is laid
    out otherwise, which a single call may not show."""

    def __init__(self) -> None:
        self.programs: dict[tuple[str, int], Any] = {}
        self._unproven: dict[tuple[str, int], int] = {}  # calls that are still to be compared

    def key(self, item: Any) -> Hashable:
        return item[0].name, _shapes(item[1])

    def _of(self, items: Sequence[Any]) -> list[Any]:
        key = items[0][0].name, len(items)
        if key not in self.programs:
            self.programs[key], self._unproven[key] = self._made(items), N_COMPARED
        if self.programs[key] is not None and self._unproven[key]:
            self._unproven[key] -= 1
            if (results := self._compared(self.programs[key], items)) is not None:
                return results
            self.programs[key] = None
        program = self.programs[key]
        return [one.alone(*given) for one, *given in items] if program is None else program(items)

    def _made(self, items: Sequence[Any]) -> Any:
        try:
            return self._program(items)
        except CANNOT_BE_STACKED:
            return None

    def _compared(self, program: Any, items: Sequence[Any]) -> list[Any] | None:
        """The results, if they are those of each item alone."""
        try:
            results: list[Any] = program(items)
            is_right = all(map(self._is_right, [program] * len(items), items, results))
            return results if is_right else None
        except CANNOT_BE_STACKED:
            return None

    def _program(self, items: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _is_right(self, program: Any, item: Any, found: Any) -> bool:
        raise NotImplementedError


def _are_same(found: Sequence[Any], alone: Sequence[Any]) -> bool:
    """Whether the results have the same bits."""
    return all(np.array_equal(a, b) for a, b in zip(found, alone, strict=True))


class Gradients(_Joint):
    """Joint work of lanes: gradients of the same loss, each with its own weights and batch."""

    def __call__(self, items: Sequence[GradientItem]) -> list[list[Tensor]]:
        sizes = range(2, len(items) + 1) if items[0][0].params[0].is_cuda else CPU_STACK
        if len(items) < sizes.start:
            return [one.alone(*given) for one, *given in items]
        parts = _chunks(items, max(sizes))
        return [result for part in parts for result in self._of(part)]

    def _program(self, items: Sequence[GradientItem]) -> _StackedGradient:
        return _StackedGradient(items[0][0], len(items[0][2]), len(items))

    def _is_right(self, program: _StackedGradient, item: GradientItem, found: list[Tensor]) -> bool:
        one, batch, coefficients = item
        expected = eager(one.loss, one.params, batch, coefficients)
        if not are_close(found, expected) or program.gradient.mode == "torch":
            return False
        if not found[0].is_cuda and not _are_same(found, one.alone(batch, coefficients)):
            return False
        one.resume(program.gradient.mode)
        return True


# -- acting -------------------------------------------------------------------------------------


class _StackedInference(nn.Module):
    """A forward pass of S networks: arrays [N, S, ...] -> [S, N, ...]."""

    def __init__(self, one: Inference, n: int) -> None:
        super().__init__()
        self._function, self._params = one.function, list(one.module.parameters())
        self._buffers_of_one = list(one.module.buffers())
        weights = flat_of(self._params)
        assert weights is not None
        self._rows = Rows([weights, *self._buffers_of_one], n)
        self.weights = nn.Parameter(self._rows.places[0])
        for i, place in enumerate(self._rows.places[1:]):
            self.register_buffer(f"rows{i}", place)
        self.infer = Inference(self._stacked, self, record=one.records)
        self._found: dict[Inference, tuple[int, list[Tensor]]] = {}

    def _stacked(self, *inputs: Any) -> Any:
        leaves, structure = tree.flatten(inputs)

        def one(row: Tensor, buffers: Sequence[Tensor], *own: Tensor) -> Any:
            given = [*self._params, *self._buffers_of_one]
            with _Replaced(given, [*_split(row, self._params), *buffers]):
                outputs = self._function(*tree.unflatten(structure, own))
            return outputs if isinstance(outputs, Tensor) else tuple(outputs)

        stacked = torch.func.vmap(one, in_dims=(0, 0, *[1] * len(leaves)))
        outputs = stacked(self.weights, list(self.buffers()), *leaves)
        return outputs if isinstance(outputs, Tensor) else list(outputs)

    def forward(self, items: Sequence["InferenceItem"]) -> list[list[np.ndarray]]:
        self._rows.fill([self._tensors_of(one) for one, _ in items])
        structure = tree.structure_of(items[0][1])
        columns = zip(*(tree.leaves_of(inputs) for _, inputs in items), strict=True)
        inputs = tree.unflatten(structure, [_side_by_side(column) for column in columns])
        outputs = self.infer.alone(inputs)
        return [[output[i] for output in outputs] for i in range(len(items))]

    def _tensors_of(self, one: Inference) -> list[Tensor]:
        """The weights of a network as one vector, and its buffers. Kept, as torch searches all
        modules for them, which takes longer than the forward pass."""
        address, tensors = self._found.get(one, (None, []))
        if address != one.weights_address():
            flat = flat_of(list(one.module.parameters()))
            assert flat is not None
            tensors = [flat, *one.module.buffers()]
            self._found[one] = (one.weights_address(), tensors)
        return tensors


def _side_by_side(column: Sequence[Any]) -> Any:
    if isinstance(column[0], Tensor):
        return torch.stack(list(column)).transpose(0, 1)
    return np.swapaxes(np.stack(column), 0, 1)


InferenceItem = tuple[Inference, tuple[Any, ...]]


class Inferences(_Joint):
    """Joint work of lanes: forward passes of the same network, each with its own weights."""

    def __call__(self, items: Sequence[InferenceItem]) -> list[list[np.ndarray]]:
        return [items[0][0].alone(items[0][1])] if len(items) == 1 else self._of(items)

    def _program(self, items: Sequence[InferenceItem]) -> _StackedInference:
        return _StackedInference(items[0][0], len(items))

    def _is_right(self, program: Any, item: InferenceItem, found: Any) -> bool:
        one, inputs = item
        alone = one.alone(inputs)
        is_cuda = next(one.module.parameters()).is_cuda
        return are_close(found, alone) and (is_cuda or _are_same(found, alone))
