"""Captures GPU work once as a CUDA graph and replays it with a single launch.

An update of a small network consists of about a hundred kernels of a few microseconds, and
launching them from Python takes longer than running them. A graph launches all of them at once. It
captures the same code that runs without it, and the results are the same.

    gradient = Graphed(function)              # of tensors on the GPU, gives tensors on it
    outputs = gradient([x, y])                # overwritten by the next call with the same shapes

A graph reads and writes fixed addresses: inputs are copied to them, and everything else that the
function reads (weights) or writes (moments) must stay in place. A graph is valid for one set of
shapes. Each set gets its own graph after a few eager warm-up calls.

    staging = Staging(arrays, device)         # shapes and types of the arrays
    staging.upload(arrays)                    # all in one transfer; the host does not wait
    function(staging.tensors)                 # views of the places, always the same memory

A transfer of a few kilobytes takes about ten microseconds, whatever its size, so ten arrays in one
transfer take a tenth of the time. A forward pass of host arrays (`GraphedForward`) has its copies
in the graph: launched one by one, they take the host longer than the network.
"""

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

N_PLAIN_CALLS = 3
MAX_GRAPHS = 8  # shapes that change on every call are not worth a graph each

Function = Callable[[Sequence[Tensor]], list[Tensor]]


_is_inlined = ContextVar("is_inlined", default=False)


@contextmanager
def inlined() -> Iterator[None]:
    """Inside, functions run without graphs of their own, so that one graph can hold them all."""
    token = _is_inlined.set(True)
    try:
        yield
    finally:
        _is_inlined.reset(token)


def is_inlined() -> bool:
    return _is_inlined.get()


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Inside, work goes into the graph instead of the GPU.

    No garbage is collected meanwhile: an earlier training can have left graphs and pinned memory in
    reference cycles, and to free these during a capture ends the process."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            yield
    finally:
        if was_enabled:
            gc.enable()


Given = TypeVar("Given")
Captured = TypeVar("Captured")


class Captures(Generic[Given, Captured]):
    """One capture for each set of shapes, made after a few plain calls."""

    def __init__(self, capture: Callable[[Given], Captured]):
        self._capture = capture
        self.failure: str | None = None  # why there is none
        self._found: dict[Hashable, Captured] = {}
        self._n_calls: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, key: Hashable, given: Given) -> Captured | None:
        """None: make a plain call."""
        found = self._found.get(key)
        if found is not None or self.failure is not None or len(self._found) == MAX_GRAPHS:
            return found
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        if self._n_calls[key] <= N_PLAIN_CALLS:
            return None
        try:
            found = self._found[key] = self._capture(given)
        except RuntimeError as error:  # it synchronises with the GPU, or copies from the host
            self.failure = str(error).splitlines()[0]
            torch.cuda.synchronize()
        return found


class Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]


class Graphed:
    def __init__(self, function: Function):
        self.function = function
        self._captures = Captures[Sequence[Tensor], Capture](partial(_captured, function))

    @property
    def failure(self) -> str | None:
        """Why it runs eagerly, if it cannot be captured."""
        return self._captures.failure

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if is_inlined():
            return self.function(inputs)
        capture = self._captures(tuple((t.shape, t.dtype) for t in inputs), inputs)
        if capture is None:
            return self.function(inputs)
        for place, given in zip(capture.inputs, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        capture.graph.replay()
        return capture.outputs


def _captured(function: Function, inputs: Sequence[Tensor]) -> Capture:
    """Capture without running: the weights do not change."""
    places = [t.clone() for t in inputs]
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        outputs = function(places)
    return Capture(graph, places, outputs)


class Counted(Protocol):
    """An optimiser, which counts its steps on the host as well."""

    n_steps: int

    def set_count(self, n_steps: int) -> None: ...


class _InPlace(NamedTuple):
    graph: torch.cuda.CUDAGraph
    outputs: list[Tensor]
    n_steps: list[int]  # of each optimiser in one launch


class Recurring:
    """A function of a few numbers that changes tensors in place: on a GPU one graph for all of it.

        repeat = Recurring(device, [generator], optimizers)
        outputs = repeat(key, function, [lr])      # function(numbers) -> tensors

    `key`: all that the function depends on besides the numbers and the contents of tensors. In a
    graph the numbers are tensors, so that they may change. On a CPU the function is called."""

    def __init__(
        self,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        optimizers: Sequence[Counted] = (),
        captures: bool = True,
    ):
        """`captures`: False if the function cannot be a graph; it is called then."""
        self.device, self._is_capturable = device, captures
        self._generators, self._optimizers = list(generators), list(optimizers)
        self._captures = Captures[Callable[[], list[Tensor]], _InPlace](self._captured)
        self._staging: Staging | None = None

    @property
    def failure(self) -> str | None:
        return self._captures.failure

    def __call__(
        self,
        key: Hashable,
        function: Callable[[Sequence[Any]], list[Tensor]],
        numbers: Sequence[float] = (),
    ) -> list[Tensor]:
        if self.device.type != "cuda":
            return function(numbers)
        places = self._uploaded(numbers)
        capture = None
        if self._is_capturable:
            capture = self._captures((key, len(places)), lambda: function(places))
        if capture is None:
            with inlined():
                return function(places)
        capture.graph.replay()
        for optimizer, n in zip(self._optimizers, capture.n_steps, strict=True):
            optimizer.n_steps += n
        return capture.outputs

    def _uploaded(self, numbers: Sequence[float]) -> Sequence[Tensor]:
        """The numbers on the GPU, always in the same places."""
        if not numbers:
            return ()
        given = [np.array(numbers, np.float32)]
        if self._staging is None:
            self._staging = Staging(given, self.device)
        self._staging.upload(given)
        return self._staging.tensors[0].unbind()

    def _captured(self, function: Callable[[], list[Tensor]]) -> _InPlace:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        before = [optimizer.n_steps for optimizer in self._optimizers]
        n_steps = list[int]()
        try:
            with inlined(), capturing(graph):
                outputs = function()
        finally:  # nothing has run yet
            for optimizer, count in zip(self._optimizers, before, strict=True):
                n_steps.append(optimizer.n_steps - count)
                optimizer.set_count(count)
        return _InPlace(graph, outputs, n_steps)


ALIGNMENT = 64  # bytes, enough for every type and for vector loads
N_BUFFERS = 4


class Staging:
    def __init__(self, examples: Sequence[np.ndarray], device: torch.device):
        starts = np.cumsum([0, *(-(-a.nbytes // ALIGNMENT) * ALIGNMENT for a in examples)])
        n_bytes = max(int(starts[-1]), ALIGNMENT)
        is_cuda = device.type == "cuda"
        self._place = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
        self._buffers = [
            torch.zeros(n_bytes, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(N_BUFFERS)
        ]
        self._stream = torch.cuda.current_stream(device) if is_cuda else None
        self._events = [torch.cuda.Event() if is_cuda else None for _ in range(N_BUFFERS)]
        self._turn = 0
        bounds = [(int(start), a.nbytes) for start, a in zip(starts, examples, strict=False)]
        self._views = [
            [
                buffer.numpy()[start : start + size].view(a.dtype).reshape(a.shape)
                for (start, size), a in zip(bounds, examples, strict=True)
            ]
            for buffer in self._buffers
        ]
        self.tensors: list[Tensor] = [
            self._place[start : start + size].view(torch.from_numpy(a[:0]).dtype).view(a.shape)
            for (start, size), a in zip(bounds, map(np.atleast_1d, examples), strict=True)
        ]

    def upload(self, arrays: Sequence[np.ndarray]) -> None:
        """Copy arrays with the shapes and types of the examples to the GPU."""
        turn = self._turn
        self._turn = (turn + 1) % N_BUFFERS
        event = self._events[turn]
        if event is not None:
            event.synchronize()  # the copy of N_BUFFERS uploads ago: finished long since
        for view, array in zip(self._views[turn], arrays, strict=True):
            view[...] = array
        self._place.copy_(self._buffers[turn], non_blocking=True)
        if event is not None:
            event.record(self._stream)


def on_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """An array as a tensor on the device; a tensor must already be there.

    Copies to a GPU use pinned memory, so the host does not wait."""
    if isinstance(array, Tensor):
        return array
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the function copies data from the host")
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor if device.type == "cpu" else tensor.to(device)


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[np.ndarray]  # pinned memory
    outputs: list[np.ndarray]
    held: list[Tensor]  # what the graph reads and writes


class GraphedForward:
    def __init__(self, function: Callable[[Sequence[Tensor]], list[Tensor]], device: torch.device):
        self._function, self._device = function, device
        self._stream = torch.cuda.current_stream(device)
        self._graphed = Graphed(function)  # of tensors that are on the GPU already
        self._captures = Captures[Sequence[np.ndarray], _Capture](self._captured)

    @property
    def failure(self) -> str | None:
        """Why arrays are passed on without a graph."""
        return self._captures.failure

    def __call__(self, arrays: Sequence[np.ndarray | Tensor]) -> list[np.ndarray]:
        if not all(isinstance(a, np.ndarray) for a in arrays):
            columns = [on_device(a, self._device) for a in arrays]
            return [output.cpu().numpy() for output in self._graphed(columns)]
        given: list[np.ndarray] = list(arrays)  # type: ignore[arg-type]
        capture = self._captures(tuple((a.shape, a.dtype) for a in given), given)
        if capture is None:
            columns = [on_device(a, self._device) for a in given]
            return [output.cpu().numpy() for output in self._function(columns)]
        for place, array in zip(capture.inputs, given, strict=True):
            place[...] = array
        capture.graph.replay()
        self._stream.synchronize()
        return [output.copy() for output in capture.outputs]

    def _captured(self, arrays: Sequence[np.ndarray]) -> _Capture:
        outputs = self._function([on_device(a, self._device) for a in arrays])
        given = [torch.from_numpy(np.ascontiguousarray(a)).pin_memory() for a in arrays]
        found = [torch.empty_like(o, device="cpu", pin_memory=True) for o in outputs]
        places = [torch.empty_like(a, device=self._device) for a in given]
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            for place, source in zip(places, given, strict=True):
                place.copy_(source, non_blocking=True)
            for target, output in zip(found, self._function(places), strict=True):
                target.copy_(output, non_blocking=True)
        held = [*given, *places, *found]
        return _Capture(graph, [a.numpy() for a in given], [o.numpy() for o in found], held)
