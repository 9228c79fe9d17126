"""A compiled forward pass, called as its NumPy form is: arrays in, arrays out."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.program import Program
from gymnasium_solver.fast.tape import Tape, Unsupported


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
