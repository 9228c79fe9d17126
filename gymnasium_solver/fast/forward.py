"""Forward passes without gradients: recorded, compiled, as CUDA graphs, or from a copy on the CPU.

    infer = Inference(network, module, record=True)
    outputs = infer(obs)            # arrays in, an array out

    values = CompiledForward(net.value, net, wanted=True)
    found = values(obs)             # arrays in, a list of arrays out; None: compute it in torch

    losses = CompiledForward(measured, net, wanted=True, n_numbers=2)
    found = losses.on((batch,), [0.2, 0.5])   # measured(batch, numbers): tensors in and out

    host = HostCopy(net, "actor")
    with host.fresh():              # copies the weights: they do not change within it
        outputs = host(obs)

A function of trees of tensors, which returns one tensor or several, is recorded at the first call
and compared with torch on that call's data (see fast/recorded.py). Rounding of compiled programs
differs from torch and NumPy. Which form is used is therefore part of a run's state (`mode`): it
depends on the config and the machine, and is kept on resume.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver import tree
from gymnasium_solver.fast.aten import FUSED
from gymnasium_solver.fast.cuda_graph import GraphedForward, on_device
from gymnasium_solver.fast.fused import fuse
from gymnasium_solver.fast.native.build import can_compile, is_proven
from gymnasium_solver.fast.native.program import NativeForward
from gymnasium_solver.fast.optimizer import flatten_parameters
from gymnasium_solver.fast.recorded import NOT_RECORDED, Forward, bind_forward, is_close, record
from gymnasium_solver.fast.tape import simplified
from gymnasium_solver.lanes import lane_for

ForwardMode = Literal["compiled", "torch"]
MOST_WORK = 2**20  # rows times parameters that a copy on the CPU computes faster than a GPU


class _Function:
    """A function that reads the weights of a module, on flat columns."""

    def __init__(self, function: Callable[..., Any], module: nn.Module, takes_numbers: bool):
        self.function, self.module, self._takes_numbers = function, module, takes_numbers
        self._structure: tree.Structure = None
        self._first = next(module.parameters(), None)

    def weights_address(self) -> int:
        """Changes when the parameters are moved, which makes views of them stale."""
        return 0 if self._first is None else self._first.data_ptr()

    def _constants(self) -> list[Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]

    def _as_loss(
        self, columns: Sequence[Tensor], numbers: Sequence[Tensor]
    ) -> tuple[None, list[Tensor]]:
        inputs = tree.unflatten(self._structure, columns)
        outputs = self.function(*inputs, *([numbers] if self._takes_numbers else []))
        return None, [outputs] if isinstance(outputs, Tensor) else list(outputs)

    def _outputs(self, columns: Sequence[Tensor]) -> list[Tensor]:
        return self._as_loss(columns, ())[1]


class Inference(_Function):
    """A forward pass for acting: arrays in, arrays out, without gradients.

    On the CPU a recorded NumPy program if `record` is set, on a GPU a CUDA graph, otherwise torch.
    """

    def __init__(self, function: Callable[..., Any], module: nn.Module, *, record: bool):
        super().__init__(function, module, takes_numbers=False)
        self.name = getattr(function, "__qualname__", "")  # the same for other learners
        self.records = record
        self._program: Forward | None = None
        self._on_gpu: GraphedForward | None = None
        self._is_cuda = self._first is not None and self._first.is_cuda
        self._address: int | None = None

    def __call__(self, *inputs: Any) -> Any:
        """One array, or a list of them if the function returns several tensors."""
        # On a CPU a forward pass takes less time than meeting the others.
        lane = lane_for("inference") if self._is_cuda else None
        if lane is None:
            outputs = self.alone(inputs)
        else:
            outputs = lane.together("inference", (self, inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def alone(self, inputs: tuple[Any, ...]) -> list[np.ndarray]:
        """The same, not together with other networks (fast/stacked.py)."""
        if self.records:
            if self._address != self.weights_address():
                self._program = self._recorded(inputs)
                self._address = self.weights_address()
            if self._program is not None:
                with np.errstate(all="ignore"):  # as in torch: non-finite values are detected later
                    return self._program(tree.leaves_of(inputs))
        return self._by_torch(inputs)

    def _recorded(self, inputs: tuple[Any, ...]) -> Forward | None:
        constants, leaves = self._constants(), tree.leaves_of(inputs)
        self._structure = tree.structure_of(inputs)
        columns = [torch.from_numpy(np.asarray(leaf)) for leaf in leaves]
        if any(not t.is_cpu for t in constants):
            return None
        try:
            tape = simplified(record(self._as_loss, columns, constants=constants), FUSED)
            program = bind_forward(tape, constants, len(columns))
            expected, got = self._by_torch(inputs), program(leaves)
        except NOT_RECORDED:
            return None
        return program if are_close(got, expected) else None

    @torch.no_grad()
    def _by_torch(self, inputs: tuple[Any, ...]) -> list[np.ndarray]:
        if self._structure is None:
            self._structure = tree.structure_of(inputs)
        device = torch.device("cpu") if self._first is None else self._first.device
        leaves = tree.leaves_of(inputs)
        if device.type == "cuda":
            if self._on_gpu is None:
                self._on_gpu = GraphedForward(self._outputs, device)
            return self._on_gpu(leaves)
        columns = [on_device(leaf, device) for leaf in leaves]
        return [output.cpu().numpy() for output in self._outputs(columns)]


class CompiledForward(_Function):
    """A forward pass as a compiled program, where updates are compiled too. `mode` is None until
    the first call decides it."""

    def __init__(
        self, function: Callable[..., Any], module: nn.Module, *, wanted: bool, n_numbers: int = 0,
        fuse: bool = False,
    ):  # fmt: skip
        """If `n_numbers` is not 0, the last argument of the function is a list of that many scalar
        tensors; call it by `on` then. `fuse`: on a GPU `on` fuses its kernels (fast/fused.py), for
        the shapes of the first call only, since that takes some ten seconds."""
        super().__init__(function, module, takes_numbers=n_numbers > 0)
        self._fuses = fuse and n_numbers == 0
        self._fused: tuple[Any, Callable[[Sequence[Tensor]], list[Tensor]]] | None = None
        self.mode: ForwardMode | None = None if wanted else "torch"
        self._program: NativeForward | None = None
        self._is_flat = False  # inputs are arrays, which needs no search for leaves
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
        if self._fuses and columns[0].is_cuda:
            return self._by_fused(columns)
        scalars: Sequence[Tensor] = ()
        if numbers:
            given = torch.tensor(list(numbers), dtype=torch.float32)
            scalars = given.to(columns[0].device).unbind()
        with torch.no_grad():
            return self._as_loss(columns, scalars)[1]

    @torch.no_grad()
    def _by_fused(self, columns: Sequence[Tensor]) -> list[Tensor]:
        shapes = [column.shape for column in columns]
        if self._fused is None:
            self._fused = shapes, fuse(self._outputs, columns) or self._outputs
        return self._fused[1](columns) if self._fused[0] == shapes else self._outputs(columns)

    @property
    def _is_stale(self) -> bool:
        """There is no program, or the weights that it reads have been moved."""
        return self._program is None or self._address != self.weights_address()

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
        self._address = self.weights_address()
        self.hold_weights(self._holds)
        self.mode = "torch" if self._program is None else "compiled"

    @torch.no_grad()
    def _compiled(
        self, columns: Sequence[Tensor], numbers: Sequence[float]
    ) -> NativeForward | None:
        constants = self._constants()
        if any(not t.is_cpu for t in (*constants, *columns)) or len(columns[0]) == 0:
            return None
        try:
            tape = simplified(record(self._as_loss, columns, numbers, constants=constants), ())
            program = NativeForward(tape, constants, columns, len(numbers))
            if self.mode is not None and is_proven(
                program.shared_library
            ):  # of a run that is resumed
                return program
            _, expected = self._as_loss(columns, [torch.tensor(number) for number in numbers])
            program.prove(lambda: are_close(program.on(columns, numbers), expected))
            return program if are_close(program.on(columns, numbers), expected) else None
        except NOT_RECORDED:
            return None


def are_close(got: Sequence[Any], expected: Sequence[Any]) -> bool:
    pairs = zip(got, expected, strict=True)
    return all(is_close(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs)


def _array(leaf: Any) -> np.ndarray:
    array: np.ndarray = leaf.numpy() if isinstance(leaf, Tensor) else leaf
    return array


class HostCopy:
    """A small network that learns on a GPU acts from a copy of its weights on the CPU.

    A forward pass of a few rows takes 20 us on a CPU. On a GPU the launch, the copies and the wait
    take several times as long, and longer yet if other processes share it. The weights are copied
    once for a whole rollout or evaluation. With more rows the GPU is faster."""

    def __init__(self, module: nn.Module, method: str) -> None:
        """`method`: of the module, the function to be computed."""
        self._source, self._method = module, method
        self._n_weights = sum(p.numel() for p in module.parameters())
        self._infer: Inference | None = None
        self._weights: Tensor | None = None  # of the copy, one vector
        self.module: Any = None  # the copy, while it is fresh
        self._copy: nn.Module | None = None

    def suits(self, n_rows: int) -> bool:
        """Whether so few rows are computed faster here."""
        return n_rows * self._n_weights <= MOST_WORK

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Within it the copy is that of the present weights, which must not change."""
        if self.module is not None:
            yield
            return
        self._update()
        self.module = self._copy
        try:
            yield
        finally:
            self.module = None

    def __call__(self, obs: Any) -> Any:
        assert self.module is not None, "the copy is used within fresh()"
        assert self._infer is not None
        return self._infer(obs)

    @torch.no_grad()
    def _update(self) -> None:
        if self._copy is None:
            self._copy = copy.deepcopy(self._source).to("cpu")
            self._weights = flatten_parameters(self._copy)
            self._infer = Inference(getattr(self._copy, self._method), self._copy, record=True)
        assert self._weights is not None
        # One transfer for all weights, one for each buffer: statistics of observations.
        flat = torch.cat([p.reshape(-1) for p in self._source.parameters()])
        self._weights.copy_(flat)
        for own, other in zip(self._copy.buffers(), self._source.buffers(), strict=True):
            own.copy_(other)
