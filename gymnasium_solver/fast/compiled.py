"""Forward passes as compiled programs, where updates are compiled too.

    values = CompiledForward(net.value, net, wanted=True)
    found = values(obs)             # arrays in, a list of arrays out; None: compute it in torch

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

    def __init__(self, function: Callable[..., Any], module: nn.Module, *, wanted: bool):
        """The function takes trees of tensors, and returns one tensor or several."""
        self.function, self.module = function, module
        self.mode: ForwardMode | None = None if wanted else "torch"
        self._program: NativeForward | None = None
        self._structure: tree.Structure = None
        self._is_flat = False  # inputs are arrays, which needs no search for leaves
        self._first = next(module.parameters())
        self._address: int | None = None

    def __call__(self, *inputs: Any) -> list[np.ndarray] | None:
        if self.mode == "torch":
            return None
        columns = inputs if self._is_flat else [_array(leaf) for leaf in tree.leaves_of(inputs)]
        address = self._first.data_ptr()  # of the weights, which may have been moved
        if self._program is None or self._address != address:
            self._is_flat = all(isinstance(column, np.ndarray) for column in inputs)
            self._program, self._address = self._compiled(inputs, columns), address
            self.mode = "torch" if self._program is None else "compiled"
            if self._program is None:
                return None
        return self._program(columns)

    def resume(self, mode: ForwardMode | None) -> bool:
        """Go on as a saved run did. False: it was compiled, and there is no C compiler here."""
        if mode == "compiled" and not can_compile():
            self.mode = "torch"
            return False
        self.mode = mode or self.mode
        return True

    def _compiled(
        self, inputs: tuple[Any, ...], columns: Sequence[np.ndarray]
    ) -> NativeForward | None:
        self._structure = tree.structure_of(inputs)
        constants = [*self.module.parameters(), *self.module.buffers()]
        given = [torch.from_numpy(column) for column in columns]
        if any(not t.is_cpu for t in (*constants, *given)) or len(given[0]) == 0:
            return None
        try:
            one, two = (
                write(self._as_loss, {"p": [], "k": constants, "c": [], "b": resized(given, n)})
                for n in PROBE_SIZES
            )
            tape = simplified(generalise(one, two, PROBE_SIZES), ())
            program = NativeForward(tape, constants, given)
            if self.mode is None and not self._agrees(program(columns), given):
                return None
        except (Unsupported, TypeError, ValueError, IndexError, RuntimeError):
            return None
        return program

    @torch.no_grad()
    def _agrees(self, got: Sequence[np.ndarray], columns: Sequence[Tensor]) -> bool:
        _, expected = self._as_loss(columns, ())
        return all(is_close(torch.from_numpy(a), b) for a, b in zip(got, expected, strict=True))

    def _as_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[None, Sequence[Tensor]]:
        outputs = self.function(*tree.unflatten(self._structure, columns))
        return None, [outputs] if isinstance(outputs, Tensor) else list(outputs)


def _array(leaf: Any) -> np.ndarray:
    array: np.ndarray = leaf.numpy() if isinstance(leaf, Tensor) else leaf
    return array
