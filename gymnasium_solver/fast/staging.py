"""Copies host arrays to fixed places on a GPU, all of them in one transfer.

    staging = Staging(arrays, device)      # shapes and types of the arrays
    staging.upload(arrays)                 # the host does not wait
    function(staging.tensors)              # views of the places, always the same memory

A transfer of a few kilobytes takes about ten microseconds, whatever its size, so ten arrays in one
transfer take a tenth of the time. The arrays are written into pinned memory first. There are
several such buffers: the host fills one while the GPU still reads another.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

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

    Copies to a GPU use pinned memory, so the host does not wait.
    """
    if isinstance(array, Tensor):
        return array
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the function copies data from the host")
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor if device.type == "cpu" else tensor.to(device)
