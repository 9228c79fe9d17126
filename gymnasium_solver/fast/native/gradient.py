"""The compiled gradient of a loss, called as the NumPy form is (fast/recorded.py), and a pass over
the minibatches of a batch in one call."""

from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.program import Program
from gymnasium_solver.fast.native.step import NativeOptimizer
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.fast.tape import Tape, Unsupported


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
        one call after another; other outputs are lost.
        """
        program = self.program
        n, whole = len(batch[0]), parts[0] is None
        sizes = [n if part is None else len(part) for part in parts]
        starts = np.zeros(len(parts) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        index = None if whole else np.concatenate([p for p in parts if p is not None])
        if index is not None:
            index = np.ascontiguousarray(index, np.int64)
        program.prepare(max(sizes))
        held = program.set_columns(batch)
        program.set_numbers(coefficients)
        rows = program.set_row_outputs(max(sizes))
        norms = torch.empty(len(parts))
        values = torch.empty(len(parts), program.lowered.n_outputs)
        places = list(self.numbers.values())
        watched, most = (-1, 0.0) if limit is None else (places[limit[0]], limit[1])
        done = self._update(
            program.address, self.optimizer.settings(optimizer, lr), len(parts),
            starts.ctypes.data, None if index is None else index.ctypes.data, norms.data_ptr(),
            watched, most, values.data_ptr(), values.shape[1],
        )  # fmt: skip
        del held, rows
        optimizer.n_steps += done
        return values[:done, places], norms[:done]
