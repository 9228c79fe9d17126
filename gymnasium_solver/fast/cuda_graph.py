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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

N_PLAIN_CALLS = 3
MAX_GRAPHS = 8  # shapes that change on every call are not worth a graph each

Function = Callable[[Sequence[Tensor]], list[Tensor]]
Key = tuple[tuple[torch.Size, torch.dtype], ...]


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


class Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]


class Graphed:
    def __init__(self, function: Function):
        self.function = function
        self.failure: str | None = None  # why it runs eagerly, if it cannot be captured
        self._captures: dict[Key, Capture] = {}
        self._n_calls: dict[Key, int] = {}

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if is_inlined():
            return self.function(inputs)
        key = tuple((t.shape, t.dtype) for t in inputs)
        capture = self._captures.get(key) or self._warmed_up(key, inputs)
        if capture is None:
            return self.function(inputs)
        for place, given in zip(capture.inputs, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        capture.graph.replay()
        return capture.outputs

    def _warmed_up(self, key: Key, inputs: Sequence[Tensor]) -> Capture | None:
        """The graph for these shapes, captured after the warm-up; None: run eagerly."""
        if self.failure is not None or len(self._captures) == MAX_GRAPHS:
            return None
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        if self._n_calls[key] <= N_PLAIN_CALLS:
            return None
        try:
            self._captures[key] = _captured(self.function, inputs)
        except RuntimeError as error:  # it synchronises with the GPU, or copies from the host
            self.failure = str(error).splitlines()[0]
            torch.cuda.synchronize()
            return None
        return self._captures[key]


def _captured(function: Function, inputs: Sequence[Tensor]) -> Capture:
    """Capture without running: the weights do not change."""
    places = [t.clone() for t in inputs]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function(places)
    return Capture(graph, places, outputs)
