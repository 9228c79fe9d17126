"""A forward pass on a GPU: arrays in, arrays out, in one launch and one wait.

The graph holds the copies too: from pinned memory to the GPU, and of the results back. Launched one
by one, they take the host longer than the network.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.cuda_graph import Captures, Graphed, capturing
from gymnasium_solver.fast.staging import on_device


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
