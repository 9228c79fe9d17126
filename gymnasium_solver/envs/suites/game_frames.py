"""Frames of games into what a CNN reads: gray, small, stacked. NumPy only, exact on any machine.

    shrink = AreaResize((120, 160), (84, 84))
    stack = FrameStack(n_envs=8, n_frames=4)
    obs = stack.push(shrink(frames), opened)        # uint8 (8, 4, 84, 84), fresh each time

Channels come first. The options of a suite that uses them are in game_options.py.
"""

from math import gcd
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.game_options import ScreenOptions

# Luma weights in 256ths. ITU-R BT.601 is what gray frames are usually made with; VizDoom's own gray
# is 0.21 R + 0.72 G + 0.07 B.
BT601 = (77, 150, 29)
VIZDOOM_GRAY = (54, 184, 18)


def gray(planes: np.ndarray, weights: tuple[int, int, int] = BT601) -> np.ndarray:
    """RGB planes (..., 3, H, W) uint8 -> gray (..., H, W) uint8, rounded down.

    Integer arithmetic only: floats would round differently where the compiler fuses a product and
    a sum (aarch64), and the agent's observations would depend on the machine."""
    weighted = planes.astype(np.uint16)
    weighted *= np.array(weights, np.uint16)[:, None, None]
    total = weighted[..., 0, :, :]
    total += weighted[..., 1, :, :]
    total += weighted[..., 2, :, :]
    total >>= 8
    return total.astype(np.uint8)


def screen_space(options: ScreenOptions, height: int, width: int) -> gymnasium.spaces.Box:
    """The observation space for frames of this size, as drawn by the game."""
    height, width = options.resize_obs or (height, width)
    channels = options.frame_stack * (1 if options.grayscale_obs else 3)
    return gymnasium.spaces.Box(0, 255, (channels, height, width), np.uint8)


class AreaResize:
    """Resizes uint8 frames (..., H, W): each pixel is the mean of the area that it covers.

    Sizes are cut by their common divisor into equal blocks with whole-number weights, and summed as
    such: exact on any machine. No matrix product, whose threads would fight for the cores that the
    games run on (8 frames of 120 x 160: 0.44 ms, against 1.3 with one thread and 8 with two).
    """

    def __init__(self, size_in: tuple[int, int], size_out: tuple[int, int]) -> None:
        self.size_in, self.size_out = size_in, size_out
        self._rows, self._columns = map(_overlaps, size_in, size_out)
        self._total = self._rows.shape[1] * self._columns.shape[1]

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        if self.size_in == self.size_out:
            return frames
        flat = frames.reshape(-1, *self.size_in)
        # The axis that is summed comes first each time, so that the sums run over whole stretches.
        tall = _sum_areas(np.moveaxis(flat, 1, 0), self._rows)  # (h, n, W)
        small = _sum_areas(np.moveaxis(tall, 2, 0), self._columns)  # (w, h, n)
        mean = (small + self._total // 2) // self._total
        return mean.transpose(2, 1, 0).astype(np.uint8).reshape(*frames.shape[:-2], *self.size_out)


def _overlaps(n_in: int, n_out: int) -> np.ndarray:
    """[outputs, inputs] of one block: how much of each input pixel an output pixel covers."""
    divisor = gcd(n_in, n_out)
    wide, narrow = n_in // divisor, n_out // divisor
    start_out = np.arange(narrow)[:, None] * wide
    start_in = np.arange(wide)[None] * narrow
    shared = np.minimum(start_out + wide, start_in + narrow) - np.maximum(start_out, start_in)
    return np.maximum(shared, 0)


def _sum_areas(values: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """Weighted sums along the first axis, one for each output pixel."""
    n_out, n_in = overlaps.shape
    dtype: Any = np.uint16 if values.dtype == np.uint8 and 255 * n_in < 2**16 else np.uint32
    blocks = values.astype(dtype, order="C").reshape(-1, n_in, *values.shape[1:])
    sums = np.empty((len(blocks), n_out, *values.shape[1:]), dtype)
    for i, weights in enumerate(overlaps):
        first, *others = np.flatnonzero(weights)
        np.multiply(blocks[:, first], dtype(weights[first]), out=sums[:, i])
        for j in others:
            sums[:, i] += blocks[:, j] * dtype(weights[j])
    return sums.reshape(-1, *values.shape[1:])


class FrameStack:
    """The last frames of every env, oldest first, as channels."""

    def __init__(self, n_envs: int, n_frames: int) -> None:
        self._n_envs, self._n_frames = n_envs, n_frames
        self._stack: np.ndarray | None = None

    def push(self, frames: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """Add frames (N, C, H, W); rows of the bool mask `opened` begin with theirs repeated."""
        _, channels, height, width = frames.shape
        shape = (self._n_envs, self._n_frames, channels, height, width)
        stack = np.empty(shape, np.uint8)
        stack[:, -1] = frames
        if self._stack is not None:
            stack[:, :-1] = self._stack[:, 1:]
        stack[opened] = frames[opened, None]
        self._stack = stack
        return stack.reshape(self._n_envs, self._n_frames * channels, height, width)
