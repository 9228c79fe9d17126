"""Probes whose observation is one number; see probe.py for what each of them asks."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.own import OwnEnv
from gymnasium_solver.envs.vector import Space
from gymnasium_solver.spaces.observations import Obs

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Reward, terminated, truncated."""


class Probe(OwnEnv):
    """A probe whose observation is one number: constant, or drawn from {-1, 1} at the start."""

    observation: Space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action: Space = gymnasium.spaces.Discrete(2)
    length = 1
    ends = "terminated"
    draws_obs = False

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(
            env_id, n_envs, self.observation, self.action, max_episode_steps=max_episode_steps
        )
        self._obs = np.zeros(n_envs, np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        if self.draws_obs:
            drawn = self._rng.integers(0, 2, self.n_envs) * 2 - 1
            self._obs = np.where(rows, drawn, self._obs).astype(np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        """Reward of each row for the state before this step; a fresh array."""
        return np.ones(self.n_envs, np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        ended = self._length + 1 >= self.length
        neither = np.zeros(self.n_envs, np.bool_)
        flags = (ended, neither) if self.ends == "terminated" else (neither, ended)
        return self._reward(actions), *flags

    def _observe(self) -> Obs:
        return self._obs[:, None].copy()


class ConstantReward(Probe):
    """Can the value function learn a constant?"""


class ObsDependentReward(Probe):
    """Does the value function see the observation?"""

    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return self._obs.copy()


class TwoStepDiscount(Probe):
    """Is a later reward discounted once, and only once?"""

    length = 2

    def _begin(self, rows: np.ndarray) -> None:
        self._obs = np.where(rows, 0.0, self._obs).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        reward = (self._length >= 1).astype(np.float32)
        _, terminated, truncated = super()._advance(actions)
        self._obs = np.ones(self.n_envs, np.float32)
        return reward, terminated, truncated


class TruncatedReward(Probe):
    """Is a cut episode bootstrapped? Taken for a termination, the value would stay below 4."""

    length = 4
    ends = "truncated"


class ActionReward(Probe):
    """Does the policy find the better action?"""

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where(actions == 1, 1.0, -1.0).astype(np.float32)


class ObsActionReward(Probe):
    """Does the policy see the observation?"""

    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where((actions == 1) == (self._obs > 0), 1.0, -1.0).astype(np.float32)


class ActionRewardContinuous(Probe):
    """Does a continuous policy find the best action?"""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return (-np.square(actions[:, 0] - 0.5)).astype(np.float32)


class ObsActionRewardContinuous(Probe):
    """Does a continuous policy see the observation?"""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return (-np.square(actions[:, 0] - self._obs / 2)).astype(np.float32)


class TwoStepDiscountContinuous(TwoStepDiscount):
    """The same question for continuous actions."""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class TruncatedRewardContinuous(TruncatedReward):
    """The same question for continuous actions."""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Memory(Probe):
    """Does the policy remember? The first observation decides which action pays at the last step;
    the observations in between are all 0, so a policy without memory gets 0 on average."""

    draws_obs = True
    length = 4

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._cue = np.zeros(n_envs, np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        self._cue = np.where(rows, self._obs, self._cue)

    def _advance(self, actions: np.ndarray) -> Outcome:
        _, terminated, truncated = super()._advance(actions)
        right = (actions == 1) == (self._cue > 0)
        reward = np.where(terminated, np.where(right, 1.0, -1.0), 0.0).astype(np.float32)
        self._obs = np.zeros(self.n_envs, np.float32)
        return reward, terminated, truncated


class Corridor(Probe):
    """Does the agent explore? The reward is at the end of a corridor of 30 cells; an episode has 60
    steps, in which a random walk hardly ever gets there."""

    length = 60
    ends = "truncated"
    cells = 30

    def _begin(self, rows: np.ndarray) -> None:
        self._obs = np.where(rows, -1.0, self._obs).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        step = np.where(actions == 1, 2.0, -2.0) / self.cells
        self._obs = np.clip(self._obs + step, -1.0, 1.0).astype(np.float32)
        arrived = self._obs > 1.0 - 1e-3
        _, _, truncated = super()._advance(actions)
        return arrived.astype(np.float32), arrived, truncated & ~arrived
