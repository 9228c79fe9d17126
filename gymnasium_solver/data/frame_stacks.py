"""Stores frame stacks as single frames: consecutive stacks share all frames but the newest.

    stacks = FrameStacks(4, observation_space)
    older = stacks.older(stack, stack_before, older_before)     # when adding: uint8[N], one row
    obs = stacks.rebuild(frames, older, index, n_envs)          # when sampling: [B, *shape]

`older` records for each row how many of its older frames are in the preceding rows (none at the
start of an episode) and how the rest is padded: engines repeat the first frame, or use zeros. Both
the padding and whether a stack continues are read from the frames themselves, so a stack is
restored exactly as it was given, or rejected.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import ConfigError, EnvError

ZERO_PADDED = 128  # added to the number of older frames
COUNT = 127
FRAME_CHANNELS = (1, 3, 4)  # per frame: greyscale, RGB, RGBA


class FrameStacks:
    def __init__(self, frame_stack: int, observation_space: spaces.Space[Any]) -> None:
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
