"""Captures GPU work once as a CUDA graph and replays it with a single launch.

An update of a small network consists of about a hundred kernels of a few microseconds, and
launching them from Python takes longer than running them. A graph launches all of them at once. It
captures the same code that runs without it, and the results are the same.

    gradient = Graphed(function)              # of tensors on the GPU, gives tensors on it
    outputs = gradient([x, y])                # overwritten by the next call with the same shapes

A graph reads and writes fixed addresses: inputs are copied to them, and everything else that the
function reads (weights) or writes (moments) must stay in place. A graph is valid for one set of
shapes. Each set gets its own graph after a few eager warm-up calls.
"""

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Generic, NamedTuple, TypeVar

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
