"""Probes with observations or actions of several parts, or with masked actions; see probe.py."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.probes.numbers import Memory, Outcome, Probe
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs


class MemoryParts(Memory):
    """Do memory, a Dict observation and masks work together? As Memory; action 2, the only legal
    one before the last step, is forbidden there. Stepping with a forbidden action is an
    EnvError."""

    observation = gymnasium.spaces.Dict(
        {
            "cue": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
            "noise": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    )
    action = gymnasium.spaces.Discrete(3)

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._step_in_episode = np.zeros(n_envs, np.int64)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        self._step_in_episode[rows] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        assert self._done is not None, "stepped, therefore reset"
        legal = self._legal()[np.arange(self.n_envs), actions]
        if not (legal | self._done).all():
            raise EnvError(f"{self.spec.env_id}: an action that its mask forbids.")
        self._step_in_episode += 1
        return super()._advance(actions)

    def _legal(self) -> np.ndarray:
        is_last = self._step_in_episode + 1 >= self.length
        return np.stack([is_last, is_last, ~is_last], axis=1)

    def _observe(self) -> Obs:
        noise = self._rng.uniform(-1.0, 1.0, (self.n_envs, 2)).astype(np.float32)
        return {"cue": self._obs[:, None].copy(), "noise": noise}


class DictObs(Probe):
    """Does the policy see the one part of a Dict observation that matters?"""

    observation = gymnasium.spaces.Dict(
        {
            "kind": gymnasium.spaces.Discrete(3),
            "noise": gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32),
            "signal": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
    )
    draws_obs = True

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._kind = np.zeros(n_envs, np.int64)
        self._noise = np.zeros((n_envs, 4), np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        noise = self._rng.uniform(-1.0, 1.0, self._noise.shape)
        self._kind = np.where(rows, self._rng.integers(0, 3, self.n_envs), self._kind)
        self._noise = np.where(rows[:, None], noise, self._noise).astype(np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where((actions == 1) == (self._obs > 0), 1.0, -1.0).astype(np.float32)

    def _observe(self) -> Obs:
        return {
            "kind": self._kind.copy(),
            "noise": self._noise.copy(),
            "signal": self._obs[:, None].copy(),
        }


class MultiDiscrete(Probe):
    """Does the policy learn every component of a MultiDiscrete action?"""

    action = gymnasium.spaces.MultiDiscrete([2, 3])
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        is_up = self._obs > 0
        right = np.stack([actions[:, 0] == is_up, actions[:, 1] == 2 * is_up], axis=1)
        return right.mean(axis=1, dtype=np.float32)


class MultiBinary(Probe):
    """Does the policy learn every bit of a MultiBinary action?"""

    action = gymnasium.spaces.MultiBinary(3)
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        is_up = self._obs > 0
        best = np.stack([is_up, ~is_up, np.ones_like(is_up)], axis=1)
        return (actions == best).mean(axis=1, dtype=np.float32)


class DictAction(Probe):
    """Does the policy learn the choice and the real number of a Dict action?"""

    action = gymnasium.spaces.Dict(
        {
            "go": gymnasium.spaces.Discrete(2),
            "how": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
    )
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        go, how = actions.T
        chosen = np.where((go == 1) == (self._obs > 0), 1.0, -1.0)
        return (chosen - np.square(how - self._obs / 2)).astype(np.float32)


class Masked(Probe):
    """Are masks obeyed, in acting and in targets? Stepping with a forbidden action is an EnvError.

    obs -1 or 1   every action pays 2; action 3 ends the episode, the others lead to obs 0.
                  Forbidden: action 0 at obs -1, action 1 at obs 1.
    obs 0         action 2 pays -1, actions 0 and 1 pay -2; the episode ends. Forbidden: action 3.

    So V(-1) = V(1) = Q(-1 or 1, 3) = 2, V(0) = -1, the other Q(-1 or 1, a) = 2 - gamma, and the
    best return is 2, of action 3. Its value 2, learnt at -1 and 1, surrounds obs 0: a
    learner that bootstraps from it there expects more than 2 of the other actions, takes them, and
    gets 1."""

    action = gymnasium.spaces.Discrete(4)
    draws_obs = True

    def _advance(self, actions: np.ndarray) -> Outcome:
        self._refuse_forbidden(actions)
        is_first, leaves = self._obs != 0, actions == 3
        second_reward = np.where(actions == 2, -1.0, -2.0)
        terminated = leaves | ~is_first
        reward = np.where(is_first, 2.0, second_reward).astype(np.float32)
        self._obs = np.where(terminated, self._obs, 0.0).astype(np.float32)
        return reward, terminated, np.zeros(self.n_envs, np.bool_)

    def _legal(self) -> np.ndarray:
        legal = np.ones((self.n_envs, 4), np.bool_)
        legal[self._obs == -1, 0] = False
        legal[self._obs == 1, 1] = False
        legal[self._obs == 0, 3] = False
        return legal

    def _refuse_forbidden(self, actions: np.ndarray) -> None:
        assert self._done is not None, "stepped, therefore reset"
        is_legal = self._legal()[np.arange(self.n_envs), actions]
        forbidden = np.flatnonzero(~is_legal & ~self._done)  # done rows ignore their action
        if len(forbidden):
            row = forbidden[0]
            raise EnvError(
                f"{self.spec.env_id}: env {row} was given action {actions[row]}, which its mask "
                f"forbids at observation {self._obs[row]:g}."
            )
