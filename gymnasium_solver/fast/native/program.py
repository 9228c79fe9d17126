"""Compiled programs called from Python: the gradient of a loss with optimiser steps for the
minibatches of a batch, and forward passes."""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_double, c_int64, c_void_p
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.native.build import is_proven, load_compiled, prove
from gymnasium_solver.fast.native.emit import Layout, emit
from gymnasium_solver.fast.native.lower import Lowered, input_metas, lower
from gymnasium_solver.fast.optimizer import Ema, FlatKind, FlatOptimizer, Group, tensor_bounds
from gymnasium_solver.fast.tape import Tape, Unsupported

LINE = 64
_threads = _most_threads = 1


def set_threads(n: int) -> int:
    """Threads of all compiled programs, at most; returns the number before. Results do not depend
    on it."""
    global _threads, _most_threads
    before, _threads = _threads, max(1, min(n, 16))
    _most_threads = max(_most_threads, _threads)
    return before


def n_threads() -> int:
    return _threads


class Call(ctypes.Structure):
    """As in runtime.h."""

    _fields_ = [
        ("n", c_int64), ("index", c_void_p), ("columns", c_void_p), ("tensors", c_void_p),
        ("numbers", c_void_p), ("sums", c_void_p), ("uniform", c_void_p), ("scratch", c_void_p),
        ("kept", c_void_p), ("out", c_void_p), ("row_out", c_void_p), ("threads", c_int64),
        ("again", c_int64),
    ]  # fmt: skip


class Program:
    """A compiled tape. `run` returns the sums (the flat gradient first) and the outputs."""

    def __init__(
        self,
        tape: Tape,
        params: Sequence[Tensor],
        constants: Sequence[Tensor],
        columns: Sequence[Tensor],
        n_coefficients: int,
    ):
        tensors = [*params, *constants]
        if any(not t.is_contiguous() for t in tensors):
            raise Unsupported("a weight that is not contiguous")
        metas = input_metas(params, constants, columns, n_coefficients)
        self.lowered: Lowered = lower(tape, metas, len(params))
        source = emit(self.lowered)
        self.layout: Layout = source.layout
        self.compiled = load_compiled(source.text, source.kernels)
        self._run = self.compiled.run
        self._run.argtypes, self._run.restype = [c_void_p], None
        self._tensors = [t.detach() for t in tensors]  # their memory must stay
        self._addresses = (c_void_p * max(1, len(tensors)))(*(t.data_ptr() for t in self._tensors))
        self._types = [c.dtype for c in columns]
        self._columns = (c_void_p * max(1, len(columns)))()
        self._row_outs = [about for kind, about in self.lowered.outputs if kind == "rows"]
        self._row_out = (c_void_p * max(1, len(self._row_outs)))()
        self._has_numbers_only = all(
            kind == "rows" or not about[1] for kind, about in self.lowered.outputs
        )
        self.numbers = np.zeros(max(1, n_coefficients), np.float32)
        self._sums = _memory(4 * self.layout.sums * self.layout.lanes).view(torch.float32)
        self._uniform = _memory(self.layout.uniform)
        self._scratch, self._kept = _memory(0), _memory(0)
        self.out = torch.zeros(max(1, self.lowered.n_outputs))
        self._out_array = self.out.numpy()
        self.n_grad = sum(p.numel() for p in params)
        self.grad = self._sums[: self.n_grad]
        self.call = call = Call()
        call.columns, call.tensors = (
            ctypes.addressof(self._columns),
            ctypes.addressof(self._addresses),
        )
        call.row_out = ctypes.addressof(self._row_out)
        call.numbers = self.numbers.ctypes.data
        call.sums, call.uniform = self._sums.data_ptr(), self._uniform.data_ptr()
        call.out = self.out.data_ptr()
        self.address = ctypes.addressof(call)
        self._n_threads = 0

    def prepare(self, n: int) -> None:
        """Memory for n samples and the current number of threads."""
        self.call.threads = min(_threads, self.layout.lanes)
        # A thread that was started for more threads, by any program with the same code, may still
        # take part.
        if self._n_threads < (most := min(_most_threads, self.layout.lanes)):
            self._n_threads = most
            self._scratch = _memory(self.layout.scratch * most)
            self.call.scratch = self._scratch.data_ptr()
        kept = self.layout.kept * (-(-n // LINE) * LINE)
        if kept > self._kept.numel():
            self._kept = _memory(kept)
            self.call.kept = self._kept.data_ptr()
        self.call.n = n

    def set_columns(self, columns: Sequence[Tensor]) -> list[Tensor]:
        """Point to these columns; returns what must stay alive until the call."""
        held = []
        for i, column in enumerate(columns):
            if column.dtype != self._types[i]:
                raise TypeError(f"column {i} is {column.dtype}, not {self._types[i]}")
            if not column.is_contiguous():
                column = column.contiguous()
            held.append(column)
            self._columns[i] = column.data_ptr()
        return held

    def set_numbers(self, coefficients: Sequence[Any]) -> None:
        for i, c in enumerate(coefficients):
            self.numbers[i] = float(c)

    def set_row_outputs(self, n: int) -> list[Tensor]:
        """New tensors for the outputs with one row per sample."""
        rows = []
        for i, (shape, dtype) in enumerate(self._row_outs):
            rows.append(torch.empty((n, *shape), dtype=dtype))
            self._row_out[i] = rows[-1].data_ptr()
        return rows

    @property
    def entry(self) -> tuple[int, int, int]:
        """Addresses: of `run`, of its argument, and of the field `again` in that."""
        function = ctypes.cast(self._run, c_void_p).value
        assert function is not None
        return function, self.address, self.address + Call.again.offset

    def pointers(self, outputs: Sequence[Tensor]) -> tuple[list[int], list[int]]:
        """Addresses of the pointers to the columns, and to outputs with one row per sample, which
        must be all outputs and of these types."""
        found = [(tuple(row.shape[1:]), row.dtype) for row in outputs]
        own = [(tuple(shape), dtype) for shape, dtype in self._row_outs]
        if found != own or len(own) != len(self.lowered.outputs):
            raise Unsupported("outputs of other types")
        step = ctypes.sizeof(c_void_p)
        columns, rows = ctypes.addressof(self._columns), ctypes.addressof(self._row_out)
        return (
            [columns + step * i for i in range(len(self._types))],
            [rows + step * i for i in range(len(own))],
        )

    def run(self, columns: Sequence[Tensor], coefficients: Sequence[Any]) -> list[Tensor]:
        """The outputs, in the order of the tape."""
        self.set_numbers(coefficients)
        held, rows = self._point_to(columns)
        self._run(self.address)
        del held
        if len(rows) == len(self.lowered.outputs):
            return rows
        # After the call torch's code is out of the cache: NumPy copies in a quarter of the time.
        return self._outputs(rows, torch.from_numpy(self._out_array.copy()))

    def bind(self, columns: Sequence[Tensor]) -> tuple[Callable[[], None], list[Tensor]]:
        """A call that reads these columns, whatever they hold by then, and the places of the
        outputs that it writes. Columns must be contiguous and stay where they are."""
        _, rows = self._point_to(columns)
        return partial(self._run, self.address), self._outputs(rows, self.out)

    def _point_to(self, columns: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The columns, which must stay alive until the call, and new outputs by row."""
        n = len(columns[0])
        self.prepare(n)
        held = self.set_columns(columns)
        return held, self.set_row_outputs(n)

    def _outputs(self, rows: list[Tensor], numbers: Tensor) -> list[Tensor]:
        left, found = iter(rows), []
        # One call for all where each is a number. The moments of batch norms are vectors of
        # hundreds, each of which would become a tensor.
        single = numbers.unbind() if self._has_numbers_only else numbers
        for kind, about in self.lowered.outputs:
            if kind == "rows":
                found.append(next(left))
            elif about[1]:
                start, shape = about
                found.append(numbers[start : start + math.prod(shape)].view(shape))
            else:
                found.append(single[about[0]])
        return found


def _memory(n_bytes: int) -> Tensor:
    """Bytes, aligned to a cache line."""
    whole = torch.zeros(n_bytes + LINE, dtype=torch.uint8)
    start = -whole.data_ptr() % LINE
    return whole[start : start + n_bytes]


# As in optimizer.c.
KINDS: list[FlatKind] = ["adam", "adamw", "laprop", "sgd", "rmsprop", "rmsprop_tf"]


class GroupSettings(ctypes.Structure):
    """As `Group` in optimizer.c."""

    _fields_ = [
        ("start", c_int64), ("stop", c_int64), ("kind", c_int64), ("ema_every", c_int64),
        ("target", c_void_p), ("tensors", c_void_p), ("n_tensors", c_int64),
        ("rows", c_void_p), ("n_rows", c_int64),
        ("lr_scale", c_double), ("beta1", c_double), ("beta2", c_double), ("eps", c_double),
        ("weight_decay", c_double), ("momentum", c_double), ("tau", c_double),
        ("agc", c_double), ("low", c_double), ("high", c_double),
    ]  # fmt: skip


class Settings(ctypes.Structure):
    """As `Optimizer` in optimizer.c."""

    _fields_ = [
        ("weights", c_void_p), ("mean", c_void_p), ("square", c_void_p),
        ("groups", POINTER(GroupSettings)),
        ("n_groups", c_int64), ("size", c_int64), ("n_steps", c_int64), ("threads", c_int64),
        ("has_targets", c_int64), ("lr", c_double), ("max_norm", c_double), ("max_value", c_double),
    ]  # fmt: skip


class NativeOptimizer:
    """Takes the steps of any optimiser; of the last ones it keeps what does not change."""

    def __init__(self, compiled: ctypes.CDLL):
        self._descend = compiled.descend
        self._descend.argtypes, self._descend.restype = [c_void_p, c_void_p], c_double
        self._known: dict[int, tuple[FlatOptimizer, Settings, Any]] = {}

    def settings(self, optimizer: FlatOptimizer, lr: float) -> int:
        """Address of the settings of the next steps."""
        _, s, _ = self._known.get(id(optimizer)) or self._prepared(optimizer)
        o = optimizer
        s.n_steps, s.lr, s.threads = o.n_steps, lr, n_threads()
        s.max_norm, s.max_value = o.max_grad_norm or 0.0, o.max_grad_value or 0.0
        for i, g in enumerate(o.groups):
            own = s.groups[i]
            own.beta1, own.beta2, own.eps = g.beta1, g.beta2, g.eps
            own.weight_decay, own.momentum = g.weight_decay, g.momentum
            if g.ema is not None and g.ema.tau is not None:
                own.tau = g.ema.tau
        return ctypes.addressof(s)

    def step(self, optimizer: FlatOptimizer, grad: Tensor, lr: float) -> Tensor:
        """One step along a flat gradient; returns its norm before clipping."""
        norm = self._descend(self.settings(optimizer, lr), grad.data_ptr())
        optimizer.n_steps += 1
        return torch.from_numpy(np.array(norm, np.float32))  # faster than torch.tensor

    def _prepared(self, o: FlatOptimizer) -> tuple[FlatOptimizer, Settings, Any]:
        groups = (GroupSettings * len(o.groups))()
        held: list[Any] = [groups]
        for own, group in zip(groups, o.groups, strict=True):
            held += self._fill(own, group, o)
        s = Settings()
        s.weights, s.mean = o.flat.data_ptr(), o.mean.data_ptr()
        s.square, s.size = o.mean_square.data_ptr(), o.flat.numel()
        s.groups, s.n_groups = groups, len(groups)
        s.has_targets = any(g.ema is not None and g.ema.tau is not None for g in o.groups)
        self._known[id(o)] = (o, s, held)
        return self._known[id(o)]

    def _fill(self, own: GroupSettings, group: Group, o: FlatOptimizer) -> list[np.ndarray]:
        """Set what does not change, and return the arrays that it points to."""
        own.start, own.stop = group.start, group.stop
        own.kind, own.lr_scale, own.agc = KINDS.index(group.kind), group.lr_scale, group.agc or 0.0
        if group.ema is not None and group.ema.tau is not None:
            own.target, own.ema_every = o.targets[group.name].flat.data_ptr(), group.ema.every
        low, high = group.bounds
        own.low, own.high = 1.0, 0.0  # none
        if group.bounds != (None, None):
            own.low = -math.inf if low is None else low
            own.high = math.inf if high is None else high
        starts = [*(start for start, _ in tensor_bounds(group)), group.stop]
        tensors = np.array(starts, np.int64)
        rows = np.array(
            [(r.start, *r.shape, r.square) for r in o.unit_rows.get(group.name, ())],
            np.int64,
        )
        own.tensors, own.n_tensors = tensors.ctypes.data, len(tensors) - 1
        own.rows, own.n_rows = rows.ctypes.data, len(rows)
        return [tensors, rows]


def optimizer_check(native: NativeOptimizer) -> Callable[[], bool]:
    """Compares the steps of every rule in C with torch's, which are made now."""
    pairs = []
    for kind in KINDS:
        ours, expected = (_small_optimizer(kind) for _ in range(2))
        grads = [torch.linspace(-1.1, 1.7, expected.flat.numel()).roll(7 * i) for i in range(2)]
        for grad in grads:
            expected.step(grad.clone(), 1e-2)
        pairs.append((ours, expected, grads))

    def agrees() -> bool:
        for ours, expected, grads in pairs:
            for grad in grads:
                native.step(ours, grad, 1e-2)
            found, wanted = ((*o._weights(), *o.state().values()) for o in (ours, expected))
            if not all(map(partial(np.allclose, rtol=1e-4, atol=1e-6), found, wanted)):
                return False
        return True

    return agrees


def _small_optimizer(kind: FlatKind) -> FlatOptimizer:
    """Two groups with all settings, each in one of them."""
    modules = [nn.Linear(17, 5), nn.Linear(3, 4)]
    for module in modules:
        for p in module.parameters():
            p.data = torch.linspace(-0.9, 1.3, p.numel()).view_as(p)
    return FlatOptimizer(
        [
            Group("one", modules[0], kind, weight_decay=0.1, momentum=0.9, ema=Ema(0.25)),
            Group(
                "two", modules[1], kind, agc=0.3, unit_rows=True, bounds=(-0.5, 0.6), ema=Ema(1.0)
            ),
        ],
        max_grad_norm=2.0,
        max_grad_value=1.5,
    )


class NativeGradient:
    def __init__(
        self,
        tape: Tape,
        params: Sequence[Tensor],
        constants: Sequence[Tensor],
        batch: Sequence[Tensor],
        n_coefficients: int,
    ):
        try:
            self.program = Program(tape, params, constants, batch, n_coefficients)
        except (AssertionError, AttributeError, KeyError) as error:
            # Arguments that the C form does not expect; the NumPy form has torch's own kernels.
            raise Unsupported(f"{type(error).__name__}: {error}") from error
        self.optimizer = NativeOptimizer(self.program.compiled)
        self._update = self.program.compiled.update
        self._update.restype = c_int64
        self._update.argtypes = [
            c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64, c_double,
            c_void_p, c_int64,
        ]  # fmt: skip

    def __call__(
        self, batch: Sequence[Tensor], coefficients: Sequence[float | Tensor]
    ) -> list[Tensor]:
        """The flat gradient (overwritten by the next call) and the further outputs."""
        outputs = self.program.run(batch, coefficients)
        return [self.program.grad, *outputs]

    @property
    def shared_library(self) -> ctypes.CDLL:
        return self.program.compiled

    def prove(
        self,
        agrees: Callable[[], bool],
        batch: Sequence[Tensor],
        coefficients: Sequence[float | Tensor],
    ) -> None:
        """Unsupported unless gradients (`agrees`), steps and passes of a new library are right."""
        if not is_proven(self.shared_library):
            steps = optimizer_check(self.optimizer)
            prove(
                self.shared_library,
                lambda: agrees() and steps() and self.passes_agree(batch, coefficients),
            )

    def passes_agree(self, batch: Sequence[Tensor], coefficients: Sequence[float | Tensor]) -> bool:
        """Whether the steps of two parts in one call have the bits of one step after another."""
        parts = [np.arange(i, len(batch[0]), 2) for i in range(min(2, len(batch[0])))]
        one, two = (
            FlatOptimizer([Group("all", nn.ParameterList([torch.zeros(self.program.n_grad)]))])
            for _ in range(2)
        )
        self.descend(batch, parts, coefficients, one, 1e-3)
        for part in parts:
            grad, *_ = self([column[part] for column in batch], coefficients)
            self.optimizer.step(two, grad, 1e-3)
        return torch.equal(one.flat, two.flat)

    @property
    def numbers(self) -> dict[int, int]:
        """The outputs of the loss that are numbers, and where each stands in the program's."""
        found = enumerate(self.program.lowered.outputs)
        return {i: about[0] for i, (kind, about) in found if kind == "number" and not about[1]}

    def descend(
        self,
        batch: Sequence[Tensor],
        parts: Sequence[np.ndarray | None],
        coefficients: Sequence[float | Tensor],
        optimizer: FlatOptimizer,
        lr: float,
        limit: tuple[int, float] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A gradient and an optimiser step for each part (indices of samples; None: all of them).

        `limit` (i, x): stops before the step of a part whose i-th number exceeds x. Returns the
        outputs that are numbers [steps, n] and the norms of the gradients [steps], the same bits as
        one call after another; other outputs are lost."""
        program = self.program
        n, whole = len(batch[0]), parts[0] is None
        sizes = [n if part is None else len(part) for part in parts]
        starts = np.array([0, *accumulate(sizes)], np.int64)
        index = None if whole else np.concatenate([p for p in parts if p is not None])
        if index is not None:
            index = np.ascontiguousarray(index, np.int64)
        program.prepare(max(sizes))
        held = program.set_columns(batch)
        program.set_numbers(coefficients)
        rows = program.set_row_outputs(max(sizes))
        norms = np.empty(len(parts), np.float32)
        values = np.empty((len(parts), program.lowered.n_outputs), np.float32)
        places = list(self.numbers.values())
        watched, most = (-1, 0.0) if limit is None else (places[limit[0]], limit[1])
        done = self._update(
            program.address, self.optimizer.settings(optimizer, lr), len(parts),
            starts.ctypes.data, None if index is None else index.ctypes.data, norms.ctypes.data,
            watched, most, values.ctypes.data, values.shape[1],
        )  # fmt: skip
        del held, rows
        optimizer.n_steps += done
        return torch.from_numpy(values[:done, places]), torch.from_numpy(norms[:done])


class NativeForward:
    """Inputs and outputs have fixed places in memory as long as the number of rows stays the same:
    acting calls this once a step, with a few rows."""

    def __init__(
        self, tape: Tape, constants: Sequence[Tensor], columns: Sequence[Tensor], n_numbers: int = 0
    ):
        try:
            self.program = Program(tape, (), constants, columns, n_numbers)
        except (AssertionError, AttributeError, KeyError) as error:
            raise Unsupported(f"{type(error).__name__}: {error}") from error
        self._columns = [(column.dtype, column.shape[1:]) for column in columns]
        self._holds_weights = self._has_packed = False
        self._n: int | None = None
        self._given: list[np.ndarray] = []
        self._found: list[np.ndarray] = []
        self._run: Callable[[], None]

    def __call__(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        n = len(columns[0])
        if n != self._n:
            self._prepare(n)
        for place, column in zip(self._given, columns, strict=True):
            place[...] = column
        self.program.call.again = self._has_packed
        self._run()
        self._has_packed = self._holds_weights
        return [output.copy() for output in self._found]

    @property
    def shared_library(self) -> ctypes.CDLL:
        return self.program.compiled

    def prove(self, agrees: Callable[[], bool]) -> None:
        """Unsupported unless a new library is right."""
        prove(self.shared_library, agrees)

    def hold_weights(self, holds: bool) -> None:
        """Whether the weights do not change from now on: they are packed at the next call only."""
        self._holds_weights, self._has_packed = holds, False

    def on(self, columns: Sequence[Tensor], numbers: Sequence[float] = ()) -> list[Tensor]:
        """The same for any number of rows at each call, with numbers that the function takes too.
        Columns are read where they are."""
        self._n, self.program.call.again = None, 0
        return self.program.run(columns, numbers)

    # -- rows of a rollout, by rows.py -------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        return len(self.program.lowered.outputs)

    @property
    def entry(self) -> tuple[int, int, int]:
        """Addresses: the C function, its argument, and in that whether the weights are packed."""
        return self.program.entry

    def pointers(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> tuple[list[int], list[int]]:
        """Addresses of the pointers to a row of each; Unsupported if these arrays do not fit."""
        rows = [torch.from_numpy(array[0]) for array in outputs]
        given = [torch.from_numpy(array[0]) for array in inputs]
        if [(row.dtype, row.shape[1:]) for row in given] != self._columns:
            raise Unsupported("inputs of other types")
        return self.program.pointers(rows)

    def begin_rows(self, n: int) -> None:
        """From now on C sets the pointers, for n rows at a time."""
        self.program.prepare(n)

    def end_rows(self) -> None:
        self._n, self.program.call.again = None, 0

    def _prepare(self, n: int) -> None:
        places = [torch.empty((n, *shape), dtype=dtype) for dtype, shape in self._columns]
        self._given = [place.numpy() for place in places]  # keeps their memory
        self._run, outputs = self.program.bind(places)
        self._found = [output.numpy() for output in outputs]
        self._n, self._has_packed = n, False  # few rows need no packing
