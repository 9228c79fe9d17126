"""Forward passes as compiled programs, where updates are compiled too.

    values = CompiledForward(net.value, net, wanted=True)
    found = values(obs)             # arrays in, a list of arrays out; None: compute it in torch

    losses = CompiledForward(measured, net, wanted=True, n_numbers=2)
    found = losses.on((batch,), [0.2, 0.5])   # measured(batch, numbers): tensors in and out

The function is recorded at the first call and compared with torch on that call's data (see
fast/recorded.py). Rounding differs from torch and NumPy. Which form is used is therefore part of a
run's state (`mode`): it depends on the config and the machine, and is kept on resume.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver import tree
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.forward import NativeForward
from gymnasium_solver.fast.recorded import PROBE_SIZES, is_close, resized
from gymnasium_solver.fast.tape import Unsupported, generalise, simplified, write

ForwardMode = Literal["compiled", "torch"]


class CompiledForward:
    """`mode` is None until the first call decides it."""

    def __init__(
        self, function: Callable[..., Any], module: nn.Module, *, wanted: bool, n_numbers: int = 0
    ):
        """The function takes trees of tensors, and returns one tensor or several. If `n_numbers` is
        not 0, its last argument is a list of that many scalar tensors; call it by `on` then."""
        self.function, self.module, self.n_numbers = function, module, n_numbers
        self.mode: ForwardMode | None = None if wanted else "torch"
        self._program: NativeForward | None = None
        self._structure: tree.Structure = None
        self._is_flat = False  # inputs are arrays, which needs no search for leaves
        self._first = next(module.parameters())
        self._address: int | None = None
        self._holds = False

    def __call__(self, *inputs: Any) -> list[np.ndarray] | None:
        if self.mode == "torch":
            return None
        columns = inputs if self._is_flat else [_array(leaf) for leaf in tree.leaves_of(inputs)]
        if self._is_stale:
            self._is_flat = all(isinstance(column, np.ndarray) for column in inputs)
            self._compile(inputs, [torch.from_numpy(column) for column in columns], ())
        return None if self._program is None else self._program(columns)

    def on(self, inputs: tuple[Any, ...], numbers: Sequence[float] = ()) -> list[Tensor]:
        """The function on trees of tensors, whose number of rows may change from call to call: by
        the program, or by torch."""
        columns = tree.leaves_of(inputs)
        if self.mode != "torch" and self._is_stale:
            self._compile(inputs, columns, numbers)
        if self.mode != "torch" and self._program is not None:
            return self._program.on(columns, numbers)
        self._structure = tree.structure_of(inputs)
        scalars = torch.tensor(list(numbers), dtype=torch.float32).to(columns[0].device).unbind()
        with torch.no_grad():
            return list(self._as_loss(columns, scalars)[1])

    @property
    def _is_stale(self) -> bool:
        """There is no program, or the weights that it reads have been moved."""
        return self._program is None or self._address != self._first.data_ptr()

    @property
    def program(self) -> NativeForward | None:
        """The program, if a call would use it as it is."""
        return None if self.mode == "torch" or self._is_stale else self._program

    def hold_weights(self, holds: bool) -> None:
        """Whether the weights stay as they are from now on, which saves time in each call."""
        self._holds = holds
        if self._program is not None:
            self._program.hold_weights(holds)

    def resume(self, mode: ForwardMode | None) -> bool:
        """Go on as a saved run did. False: it was compiled, and there is no C compiler here."""
        if mode == "compiled" and not can_compile():
            self.mode = "torch"
            return False
        self.mode = mode or self.mode
        return True

    def _compile(
        self, inputs: tuple[Any, ...], columns: Sequence[Tensor], numbers: Sequence[float]
    ) -> None:
        self._structure = tree.structure_of(inputs)
        self._program = self._compiled(columns, numbers)
        self._address = self._first.data_ptr()
        self.hold_weights(self._holds)
        self.mode = "torch" if self._program is None else "compiled"

    def _compiled(
        self, columns: Sequence[Tensor], numbers: Sequence[float]
    ) -> NativeForward | None:
        constants = [*self.module.parameters(), *self.module.buffers()]
        if any(not t.is_cpu for t in (*constants, *columns)) or len(columns[0]) == 0:
            return None
        given = {"p": [], "k": constants, "c": [torch.tensor(number) for number in numbers]}
        try:
            one, two = (
                write(self._as_loss, given | {"b": resized(columns, n)}) for n in PROBE_SIZES
            )
            tape = simplified(generalise(one, two, PROBE_SIZES), ())
            program = NativeForward(tape, constants, columns, len(numbers))
            if self.mode is None and not self._agrees(program, columns, numbers):
                return None
        except (Unsupported, TypeError, ValueError, IndexError, RuntimeError):
            return None
        return program

    @torch.no_grad()
    def _agrees(
        self, program: NativeForward, columns: Sequence[Tensor], numbers: Sequence[float]
    ) -> bool:
        _, expected = self._as_loss(columns, [torch.tensor(number) for number in numbers])
        got = program.on(columns, numbers)
        return all(is_close(a, b) for a, b in zip(got, expected, strict=True))

    def _as_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[None, Sequence[Tensor]]:
        inputs = tree.unflatten(self._structure, columns)
        outputs = self.function(*inputs, *([coefficients] if self.n_numbers else []))
        return None, [outputs] if isinstance(outputs, Tensor) else list(outputs)


def _array(leaf: Any) -> np.ndarray:
    array: np.ndarray = leaf.numpy() if isinstance(leaf, Tensor) else leaf
    return array
