"""The probe of goals and hindsight replay; see probe.py."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.own import OwnEnv
from gymnasium_solver.envs.suites.probes.numbers import Outcome
from gymnasium_solver.envs.vector import Info
from gymnasium_solver.spaces.goals import ACHIEVED, DESIRED, GoalFunctions
from gymnasium_solver.spaces.observations import Obs


class BitFlip(OwnEnv):
    """Does hindsight replay make a sparse goal reachable (Andrychowicz et al. 2017)? An action
    flips one of n bits. Every step costs 1, but the one that reaches the desired bits, which ends
    the episode. It is cut after n steps. Start and goal are drawn and differ."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, n_bits: int
    ) -> None:
        bits = gymnasium.spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        names = ("observation", ACHIEVED, DESIRED)
        observation = gymnasium.spaces.Dict([(name, bits) for name in names])
        action = gymnasium.spaces.Discrete(n_bits)
        limit = max_episode_steps or n_bits
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=limit)
        self._bits = np.zeros((n_envs, n_bits), np.float32)
        self._goal = np.ones((n_envs, n_bits), np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        shape = self._bits.shape
        start = self._rng.integers(0, 2, shape)
        # Differences from 1 to 2^n - 1: at least one bit differs.
        differs = self._rng.integers(1, 2 ** shape[1], shape[0])[:, None] >> np.arange(shape[1])
        goal = start ^ (differs & 1)
        self._bits = np.where(rows[:, None], start, self._bits).astype(np.float32)
        self._goal = np.where(rows[:, None], goal, self._goal).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        bits, envs = self._bits.copy(), np.arange(self.n_envs)
        bits[envs, actions] = 1 - bits[envs, actions]
        self._bits = bits
        reached = _same_bits(bits, self._goal)
        return reached.astype(np.float32) - 1, reached, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> Obs:
        return {
            "observation": self._bits.copy(),
            ACHIEVED: self._bits.copy(),
            DESIRED: self._goal.copy(),
        }

    def _info(self) -> Info:
        return {"is_success": _same_bits(self._bits, self._goal)}

    def goal_functions(self) -> GoalFunctions:
        return GoalFunctions(lambda a, d: _same_bits(a, d).astype(np.float32) - 1, _same_bits)


def _same_bits(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    same: np.ndarray = (achieved == desired).all(axis=1)
    return same
