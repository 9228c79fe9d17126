"""The environment for tests of accounting; see probe.py."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.own import OwnEnv
from gymnasium_solver.envs.suites.probes.numbers import Outcome
from gymnasium_solver.envs.vector import Info
from gymnasium_solver.spaces.observations import Obs

ENDS = ("terminated", "truncated", "both", "alternate")


class Counting(OwnEnv):
    """Observations that name their place: (episode index, step index)."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, length: int, ends: str
    ) -> None:
        observation = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32)
        action = gymnasium.spaces.Discrete(2)
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=max_episode_steps)
        self._lengths = length + np.arange(n_envs)
        self._ends = ends
        self._episode = np.full(n_envs, -1)
        self._steps = np.zeros(n_envs, np.int64)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._episode[:] = -1
        return super()._reset(seed)

    def _begin(self, rows: np.ndarray) -> None:
        self._episode[rows] += 1
        self._steps[rows] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        self._steps += 1
        ended = self._steps >= self._lengths
        even = self._episode % 2 == 0
        terminates = even if self._ends == "alternate" else self._ends != "truncated"
        truncates = ~even if self._ends == "alternate" else self._ends != "terminated"
        return np.ones(self.n_envs, np.float32), ended & terminates, ended & truncates

    def _observe(self) -> np.ndarray:
        return np.stack([self._episode, self._steps], axis=1).astype(np.float32)
