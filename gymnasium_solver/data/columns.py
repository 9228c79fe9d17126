"""The arrays of a replay buffer: names, shapes, dtypes, size and storage.

Observations have one column per part: "obs" for a single array, otherwise "obs.<part>". A part that
is a frame stack has an additional column "older.<part>" (FrameStacks).
"""

import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Space, part_spaces
from gymnasium_solver.spaces.space_types import is_box, is_discrete, is_product, whole_range

Form = tuple[tuple[int, ...], Any]  # shape and dtype
ZERO_PADDED = 128  # added to the number of older frames
COUNT = 127
FRAME_CHANNELS = (1, 3, 4)  # per frame: greyscale, RGB, RGBA


def column_name(kind: str, part: str) -> str:
    return f"{kind}.{part}" if part else kind


def layout_of(
    capacity: int,
    n_envs: int,
    observation_space: Space,
    actions: ActionKind,
    *,
    has_masks: bool = False,
    frame_stacks: Mapping[str, int] | None = None,
    carry: Mapping[str, np.ndarray] | None = None,
    has_bonus: bool = False,
) -> dict[str, Form]:
    """Every array, [rows, envs, ...]: the rows to sample from, the head, and the look-back rows.

    `frame_stacks`: number of frames of each stacked part. `carry`: an example of the carry to
    store. `has_bonus`: store the rewards of extensions."""
    stacks = {name: n for name, n in (frame_stacks or {}).items() if n != 1}
    deepest = max(stacks.values(), default=1)
    if capacity < 1 or n_envs < 1 or min(stacks.values(), default=1) < 1:
        raise ConfigError(
            f"a replay buffer with {capacity} transitions, {n_envs} envs and replay_frame_stack: "
            f"{deepest}; all three must be at least 1."
        )
    n_rows = -(-capacity // n_envs) + 1 + (deepest - 1)
    grid = (n_rows, n_envs)
    layout: dict[str, Form] = {}
    for name, part in part_spaces(observation_space).items():
        shape: tuple[int, ...] = part.shape or ()
        if name in stacks:
            shape = FrameStacks(stacks[name], part).frame_shape
            layout[column_name("older", name)] = (grid, np.uint8)
        layout[column_name("obs", name)] = ((*grid, *shape), part.dtype)
    layout["actions"] = ((*grid, *actions.shape), _stored_dtype(actions))
    if has_masks and actions.n_mask is not None:
        layout["mask"] = ((*grid, actions.n_mask), bool)
    for name, value in (carry or {}).items():
        layout[column_name("carry", name)] = ((*grid, *value.shape[1:]), value.dtype)
    if has_bonus:
        layout["bonus"] = (grid, np.float32)
    flags = ("terminated", "truncated", "valid", "is_first")
    return layout | {"reward": (grid, np.float32)} | dict.fromkeys(flags, (grid, bool))


def _stored_dtype(actions: ActionKind) -> Any:
    """For one of n actions the smallest dtype of the env's and the policy's, which start at 0."""
    if not is_discrete(actions.space):
        return actions.dtype
    first, last = whole_range(actions.space)
    low, high = min(first, 0), max(last, last - first)
    return np.result_type(np.min_scalar_type(low), np.min_scalar_type(high))


def allocate(shape: tuple[int, ...], dtype: Any, directory: str | None) -> np.ndarray:
    if directory is None:
        return np.zeros(shape, dtype)
    n_bytes = array_bytes(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:  # unnamed: no file is left behind
            if hasattr(os, "posix_fallocate"):  # fail now on a full disk, not at a later write
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            # A plain array over the map: the memmap class would slow down every access.
            return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
    except OSError as error:
        raise ConfigError(
            f"replay_dir: {directory} cannot hold a file of {n_bytes / 2**30:.2f} GiB: {error}. "
            "Use an existing folder on a disk with enough space, or a smaller buffer_size."
        ) from error


def array_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def forms_of(columns: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Dtype and shape of a row of each array, as text."""
    return {name: f"{a.dtype.name}{list(a.shape[1:])}" for name, a in columns.items()}


def are_actions(stored: np.ndarray, space: Space) -> bool:
    """Whether stored actions, which start at 0, are such that a network's outputs have them."""
    if is_box(space) or is_product(space):
        return stored.dtype.kind != "f" or bool(np.isfinite(stored).all())
    low, high = whole_range(space)
    return bool(((stored >= 0) & (stored <= np.ravel(high - low))).all())


class FrameStacks:
    """Stores frame stacks as single frames: consecutive stacks share all frames but the newest.

        stacks = FrameStacks(4, observation_space)
        older = stacks.older(stack, stack_before, older_before)     # when adding: uint8[N], one row
        obs = stacks.rebuild(frames, older, index, n_envs)          # when sampling: [B, *shape]

    `older` records for each row how many of its older frames are in the preceding rows (none at the
    start of an episode) and how the rest is padded: engines repeat the first frame, or use zeros.
    Both the padding and whether a stack continues are read from the frames themselves, so a stack
    is restored exactly as it was given, or rejected."""

    def __init__(self, frame_stack: int, observation_space: Space) -> None:
        shape = observation_space.shape or (0,)
        channels, rest = divmod(shape[0], frame_stack)
        if rest or channels not in FRAME_CHANNELS or frame_stack > COUNT:
            raise ConfigError(
                f"replay_frame_stack: {frame_stack} with observations of shape {shape}: their "
                f"first axis must be the {frame_stack} frames. Set replay_frame_stack: 1 to "
                "store whole observations."
            )
        self.n_frames = frame_stack
        self.frame_shape = (channels, *shape[1:])
        self._obs_shape = shape
        self._back = np.arange(frame_stack - 1, -1, -1)  # how many rows back each frame is

    def split(self, obs: np.ndarray) -> np.ndarray:
        """View stacks from the env, [..., *shape], as [..., k, *frame shape]; no copy."""
        lead = obs.shape[: obs.ndim - len(self._obs_shape)]
        return obs.reshape(*lead, self.n_frames, *self.frame_shape)

    def older(self, stack: np.ndarray, before: np.ndarray, older_before: np.ndarray) -> np.ndarray:
        """The entry to store for a row [N, k, *frame], given the previous row."""
        n_envs = len(stack)
        goes_on = (stack[:, :-1] == before[:, 1:]).reshape(n_envs, -1).all(axis=1)
        count = np.minimum((older_before & COUNT) + 1, self.n_frames - 1)
        older = (count | (older_before & ZERO_PADDED)).astype(np.uint8)
        for env in np.flatnonzero(~goes_on):
            older[env] = self._padding(stack[env], int(env))
        return older

    def _padding(self, stack: np.ndarray, env: int) -> int:
        """The entry for the first stack of an episode: no older frames, and the kind of padding."""
        if not stack[:-1].any():
            return ZERO_PADDED
        if (stack[:-1] == stack[-1]).all():
            return 0
        raise EnvError(
            f"env {env}: the older frames of an observation are neither those of the previous "
            "observation nor padding (zeros, or the newest frame repeated), so "
            f"replay_frame_stack: {self.n_frames} cannot store single frames. Set "
            "replay_frame_stack: 1 to store whole observations."
        )

    def rebuild(
        self, frames: np.ndarray, older: np.ndarray, index: np.ndarray, n_envs: int
    ) -> np.ndarray:
        """The stacks [B, *shape] at flat leaves; `frames` [leaves, *frame], `older` [leaves]."""
        code = older.take(index, mode="wrap")
        count = (code & COUNT)[:, None]
        # If there are no older frames, repeat the oldest available one, the first frame.
        source = index[:, None] - np.minimum(self._back, count) * n_envs
        stack = frames.take(source, axis=0, mode="wrap")
        if code.max(initial=0) >= ZERO_PADDED:
            is_zero = (self._back > count) & (code >= ZERO_PADDED)[:, None]
            stack[is_zero] = 0
        return stack.reshape(len(index), *self._obs_shape)
