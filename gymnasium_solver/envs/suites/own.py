"""Base of this project's own environments, vectorised in NumPy (bandit.py, memory.py, probe.py).

A subclass holds its state in arrays of N rows and says how to begin episodes, advance and observe,
and which actions are legal where not all are; autoreset, the time limit and the episode totals are
the contract's.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from gymnasium_solver.envs.masks import KEY as MASK_KEY
from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.envs.vector import Engine, Info, RawStep, Space
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs


class OwnEnv(Engine):
    """N rows of state advanced together; one random generator for all rows."""

    def __init__(
        self,
        env_id: str,
        n_envs: int,
        observation: Space,
        action: Space,
        *,
        max_episode_steps: int | None = None,
        reward_threshold: float | None = None,
    ) -> None:
        spec = EnvSpec(
            env_id=env_id,
            engine="own",
            engine_reason="built in, vectorised in NumPy",
            max_episode_steps=max_episode_steps,
            reward_threshold=reward_threshold,
            suite=env_id.replace("/", "-").split("-")[0].lower(),
        )
        super().__init__(n_envs, observation, action, spec)
        self._rng = np.random.default_rng(0)

    @abstractmethod
    def _begin(self, rows: np.ndarray) -> None:
        """Open a new episode in the rows of a bool mask."""

    @abstractmethod
    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Advance every row; fresh reward, terminated, truncated. Reset rows are overwritten."""

    @abstractmethod
    def _observe(self) -> Obs:
        """Observations of all rows, fresh arrays."""

    def _legal(self) -> np.ndarray | None:
        """bool[N, A], the legal actions of all rows; None where every action always is."""
        return None

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._rng = np.random.default_rng(seed)
        self._begin(np.ones(self.n_envs, np.bool_))
        return self._observe(), self._info()

    def _info(self) -> Info:
        legal = self._legal()
        return {} if legal is None else {MASK_KEY: legal}

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        reward, terminated, truncated = self._advance(actions)
        if self.spec.max_episode_steps is not None:
            truncated = truncated | (self._length + 1 >= self.spec.max_episode_steps)
        if n_reset:
            reward[is_reset] = 0.0
            terminated[is_reset] = False
            truncated[is_reset] = False
            self._begin(is_reset)
        return self._observe(), reward, terminated, truncated, self._info()


def refuse_unknown(env_id: str, kwargs: dict[str, Any], known: tuple[str, ...]) -> None:
    """EnvError for env_kwargs that an own env does not take."""
    for name in kwargs:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise EnvError(f"{env_id}: unknown env_kwargs key {name!r}. It takes: {takes}.")
