"""The probe of image observations; see probe.py."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.own import OwnEnv
from gymnasium_solver.envs.suites.probes.numbers import Outcome
from gymnasium_solver.errors import EnvError

IMAGE_SHAPE = (4, 84, 84)


class Image(OwnEnv):
    """Does the policy see an image? A bright square is somewhere in its left or its right half;
    reward 1 for the action that names the side, else -1, and the episode ends. The mean of all
    pixels is no help. `shape` is [channels, height, width], the channels all alike (a stack of
    frames that stand still), or [height, width, channels]; see nets/cnn.py."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, shape: tuple[int, ...]
    ) -> None:
        observation = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        action = gymnasium.spaces.Discrete(2)
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=max_episode_steps)
        self._has_channels_first = shape[0] <= shape[2]
        height, width = shape[1:] if self._has_channels_first else shape[:2]
        if width < 2:
            raise EnvError(f"{env_id}: shape {list(shape)} has a width of {width}, less than 2.")
        self._frames = np.zeros((n_envs, height, width), np.uint8)
        self._side = np.zeros(n_envs, np.int64)

    def _begin(self, rows: np.ndarray) -> None:
        n_envs, height, width = self._frames.shape
        size = max(1, min(height, width // 2) // 4)
        side = self._rng.integers(0, 2, n_envs)
        top = self._rng.integers(0, height - size + 1, n_envs)
        left = self._rng.integers(0, width // 2 - size + 1, n_envs) + side * (width - width // 2)
        self._side = np.where(rows, side, self._side)
        for row in np.flatnonzero(rows):
            self._frames[row] = 0
            y, x = top[row], left[row]
            self._frames[row, y : y + size, x : x + size] = 255

    def _advance(self, actions: np.ndarray) -> Outcome:
        reward = np.where(actions == self._side, 1.0, -1.0).astype(np.float32)
        return reward, np.ones(self.n_envs, np.bool_), np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> np.ndarray:
        frames = self._frames[:, None] if self._has_channels_first else self._frames[..., None]
        shape = self.observation_space.shape or ()
        return np.broadcast_to(frames, (self.n_envs, *shape)).copy()
