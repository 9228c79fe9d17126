"""Base of this project's own environments, vectorised in NumPy (bandit.py, memory.py, probes.py),
and how suites read their options.

A subclass holds its state in arrays of N rows and says how to begin episodes, advance and observe,
and which actions are legal where not all are; autoreset, the time limit and the episode totals are
the contract's.
"""

from abc import abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gymnasium_solver.envs.masks import KEY as MASK_KEY
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.vector import Engine, Info, RawStep, Space
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.spaces.observations import Obs

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Reward, terminated, truncated."""


class OwnEnv(Engine):
    """N rows of state advanced together; one random generator for all rows."""

    def __init__(
        self,
        request: EnvRequest,
        observation: Space,
        action: Space,
        *,
        limit: int | None = None,
        threshold: float | None = None,
    ) -> None:
        """`limit`: of an episode's steps, unless another was asked for."""
        spec = EnvSpec(
            env_id=request.env_id,
            engine="own",
            engine_reason="built in, vectorised in NumPy",
            max_episode_steps=request.max_episode_steps or limit,
            reward_threshold=threshold,
            suite=request.env_id.replace("/", "-").split("-")[0].lower(),
        )
        super().__init__(request.n_envs, observation, action, spec)
        self._rng = np.random.default_rng(0)

    @abstractmethod
    def _begin(self, rows: np.ndarray) -> None:
        """Open a new episode in the rows of a bool mask."""

    @abstractmethod
    def _advance(self, actions: np.ndarray) -> Outcome:
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


def refuse_unknown(request: EnvRequest, known: Sequence[str]) -> None:
    """EnvError for env_kwargs that an env does not take."""
    for name in request.env_kwargs:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise EnvError(f"{request.env_id}: unknown env_kwargs key {name!r}. It takes: {takes}.")


def imported(module: str, asked_by: str, hint: str) -> Any:
    """A module of an extra; MissingError with what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingError(f"{asked_by}: {hint} ({error})") from error


def whole_option(
    request: EnvRequest, name: str, default: int, least: int = 1, most: int | None = None
) -> int:
    """A whole number among the env_kwargs."""
    value = request.env_kwargs.get(name, default)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        span = f">= {least}" if most is None else f"from {least} to {most}"
        raise EnvError(f"{request.env_id}: {name} must be an int {span}, got {value!r}.")
    return int(value)
