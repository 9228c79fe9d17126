"""A forward pass on a GPU: arrays in, arrays out, in one launch and one wait.

The graph holds the copies too: from pinned memory to the GPU, and of the results back. Launched one
by one, they take the host longer than the network.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.cuda_graph import MAX_GRAPHS, N_PLAIN_CALLS, Graphed
from gymnasium_solver.fast.staging import on_device

Shapes = tuple[tuple[tuple[int, ...], np.dtype], ...]


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
        self._captures: dict[Shapes, _Capture] = {}
        self._n_calls: dict[Shapes, int] = {}
        self.failure: str | None = None  # why arrays are passed on without a graph

    def __call__(self, arrays: Sequence[np.ndarray | Tensor]) -> list[np.ndarray]:
        if not all(isinstance(a, np.ndarray) for a in arrays):
            columns = [on_device(a, self._device) for a in arrays]
            return [output.cpu().numpy() for output in self._graphed(columns)]
        given: list[np.ndarray] = list(arrays)  # type: ignore[arg-type]
        key = tuple((a.shape, a.dtype) for a in given)
        capture = self._captures.get(key) or self._warmed_up(key, given)
        if capture is None:
            columns = [on_device(a, self._device) for a in given]
            return [output.cpu().numpy() for output in self._function(columns)]
        for place, array in zip(capture.inputs, given, strict=True):
            place[...] = array
        capture.graph.replay()
        self._stream.synchronize()
        return [output.copy() for output in capture.outputs]

    def _warmed_up(self, key: Shapes, arrays: Sequence[np.ndarray]) -> _Capture | None:
        """The graph for these shapes, captured after the warm-up; None: run eagerly."""
        if self.failure is not None or len(self._captures) == MAX_GRAPHS:
            return None
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        if self._n_calls[key] <= N_PLAIN_CALLS:
            return None
        try:
            self._captures[key] = self._captured(arrays)
        except RuntimeError as error:  # it synchronises with the GPU, or copies from the host
            self.failure = str(error).splitlines()[0]
            torch.cuda.synchronize()
            return None
        return self._captures[key]

    def _captured(self, arrays: Sequence[np.ndarray]) -> _Capture:
        outputs = self._function([on_device(a, self._device) for a in arrays])
        given = [torch.from_numpy(np.ascontiguousarray(a)).pin_memory() for a in arrays]
        found = [torch.empty_like(o, device="cpu", pin_memory=True) for o in outputs]
        places = [torch.empty_like(a, device=self._device) for a in given]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for place, source in zip(places, given, strict=True):
                place.copy_(source, non_blocking=True)
            for target, output in zip(found, self._function(places), strict=True):
                target.copy_(output, non_blocking=True)
        held = [*given, *places, *found]
        return _Capture(graph, [a.numpy() for a in given], [o.numpy() for o in found], held)
