"""The arrays of a replay: their shapes and dtypes, what they take, and where they lie."""

import math
import os
import tempfile
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.data.frame_stacks import FrameStacks
from gymnasium_solver.errors import ConfigError

Space = spaces.Space[Any]
Form = tuple[tuple[int, ...], Any]  # shape and dtype


def layout_of(
    capacity: int,
    n_envs: int,
    observation_space: Space,
    action_space: Space,
    n_masked_actions: int | None,
    frame_stack: int,
) -> dict[str, Form]:
    """Every array, [rows, envs, ...]: the rows to sample from, the head, and the look-back."""
    if capacity < 1 or n_envs < 1 or frame_stack < 1:
        raise ConfigError(
            f"a replay buffer of {capacity} transitions of {n_envs} envs with replay_frame_stack: "
            f"{frame_stack}; all three must be at least 1."
        )
    n_rows = -(-capacity // n_envs) + 1 + (frame_stack - 1)
    grid = (n_rows, n_envs)
    obs_shape: tuple[int, ...] = observation_space.shape or ()
    layout: dict[str, Form] = {}
    if frame_stack > 1:
        obs_shape = FrameStacks(frame_stack, observation_space).frame_shape
        layout["older"] = (grid, np.uint8)
    if isinstance(action_space, spaces.Discrete):
        layout["actions"] = (grid, _smallest_int(action_space))
    else:
        n_actions = math.prod(action_space.shape or ())
        layout["actions"] = ((*grid, n_actions), np.float32)
    if n_masked_actions is not None:
        layout["mask"] = ((*grid, n_masked_actions), bool)
    return layout | {
        "obs": ((*grid, *obs_shape), observation_space.dtype),
        "reward": (grid, np.float32),
        "terminated": (grid, bool),
        "truncated": (grid, bool),
        "valid": (grid, bool),
    }


def _smallest_int(space: spaces.Discrete) -> np.dtype[Any]:
    """Fits the env's actions and the policy's, which count from 0."""
    first, last = int(space.start), int(space.start + space.n) - 1
    low, high = min(first, 0), max(last, int(space.n) - 1)
    return np.result_type(np.min_scalar_type(low), np.min_scalar_type(high))


def allocate(shape: tuple[int, ...], dtype: Any, directory: str | None) -> np.ndarray:
    if directory is None:
        return np.zeros(shape, dtype)
    n_bytes = array_bytes(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:  # has no name: nothing is left behind
            if hasattr(os, "posix_fallocate"):  # a full disk must fail here, not at a later write
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            # A plain array over the map: the memmap class would slow down every access.
            return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
    except OSError as error:
        raise ConfigError(
            f"replay_dir: {directory} cannot hold a file of {n_bytes / 2**30:.2f} GiB: {error}. "
            "Give a folder that exists, on a disk with enough room, or a smaller buffer_size."
        ) from error


def array_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
