"""Compiled programs called from Python: gradients, forward passes and optimiser steps."""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.build import load_compiled
from gymnasium_solver.fast.native.emit import Layout, emit
from gymnasium_solver.fast.native.lower import Lowered, input_metas, lower
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
        left, found, single = iter(rows), [], numbers.unbind()
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
