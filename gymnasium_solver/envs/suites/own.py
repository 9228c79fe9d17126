"""Environments of this project, vectorised in NumPy: their base, bandits and memory tasks
(probes.py has more), and how suites read their options.

A subclass of `OwnEnv` holds its state in attributes, arrays of N rows. It says what they are when
episodes begin (`_new`), how to advance and observe, and which actions are legal where not all are;
autoreset, the time limit and the episode totals are the contract's.

docs/envs.md and docs/suites.md say what bandits and memory tasks are and which env_kwargs they
take.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.action_checks import MASK_KEY
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.vector import Engine, Info, RawStep, Space, VectorEnv
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.spaces.observations import Obs

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray]  # reward, terminated, truncated


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
        suite = request.env_id.replace("/", "-").split("-")[0].lower()
        facts = request.max_episode_steps or limit, threshold, suite
        spec = EnvSpec(request.env_id, "own", "built in, vectorised in NumPy", *facts)
        super().__init__(request.n_envs, observation, action, spec)
        self._rng = np.random.default_rng(0)

    def _new(self) -> dict[str, np.ndarray]:
        """Attributes at the beginning of episodes, drawn for all rows."""
        return {}

    def _begin(self, rows: np.ndarray) -> None:
        """Open a new episode in the rows of a bool mask."""
        for name, new in self._new().items():
            mask = rows.reshape(-1, *[1] * (new.ndim - 1))
            setattr(self, name, np.where(mask, new, getattr(self, name, new)))

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
            reward[is_reset], terminated[is_reset], truncated[is_reset] = 0.0, False, False
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
        raise MissingError(f"{asked_by}: {hint} ({error})".removeprefix(": ")) from error


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


# -- bandits --------------------------------------------------------------------------------------


SETS: dict[str, dict[str, Any]] = {
    "TwoArms": {"means": [0.2, 0.8]},
    "TenArms": {"n_arms": 10},
    "HundredArms": {"n_arms": 100},
    "Close": {"means": [0.45, 0.5, 0.55], "stds": 0.05, "episode_length": 100},
    "Noisy": {"n_arms": 10, "stds": 1.0, "episode_length": 100},
    "Deceptive": {"means": [0.5, 0.6, 0.0], "stds": [0.01, 0.1, 2.0], "episode_length": 50},
}
"""Deceptive: the worst arm sometimes pays the most."""


class Bandit(OwnEnv):
    """N bandits with the same arms; the reward is a normal draw. There is no state but the pulls
    made, which are counted. Solved: halfway between always pulling the best and the second best."""

    def __init__(
        self, request: EnvRequest, means: np.ndarray, stds: np.ndarray, episode_length: int
    ) -> None:
        second_best, best = np.sort(means)[-2:]
        super().__init__(
            request,
            gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
            gymnasium.spaces.Discrete(len(means)),
            threshold=float(episode_length * (best + second_best) / 2),
        )
        self._means, self._stds, self._episode_length = means, stds, episode_length

    def _advance(self, actions: np.ndarray) -> Outcome:
        noise = self._rng.standard_normal(self.n_envs)
        reward = (self._means[actions] + self._stds[actions] * noise).astype(np.float32)
        terminated = self._length + 1 >= self._episode_length
        return reward, terminated, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> np.ndarray:
        return np.zeros((self.n_envs, 1), np.float32)


def make_bandit(request: EnvRequest) -> VectorEnv:
    """Build Bandit-v0 or Bandit/<name>; env_kwargs go before what the name stands for."""
    env_id, given = request.env_id, request.env_kwargs
    name = env_id.removeprefix("Bandit/").removesuffix("-v0")
    if env_id != "Bandit-v0" and name not in SETS:
        known = ", ".join(f"Bandit/{name}" for name in SETS)
        raise EnvError(f"Unknown environment {env_id!r}. Did you mean Bandit-v0, or {known}?")
    refuse_unknown(request, ("n_arms", "means", "stds", "episode_length"))
    arms = {} if "means" in given or "n_arms" in given else SETS.get(name, {})
    request = replace(request, env_kwargs={**arms, **given})
    means = _numbers(request, "means", [])
    n_arms = whole_option(request, "n_arms", len(means) or 10, least=2)
    if "means" not in request.env_kwargs:
        means = np.linspace(0.0, 1.0, n_arms)
    stds = _numbers(request, "stds", 0.1)
    if len(stds) == 1:
        stds = np.repeat(stds, n_arms)
    for name, values in (("means", means), ("stds", stds)):
        if values.shape != (n_arms,) or not np.isfinite(values).all():
            wanted = f"{n_arms} finite numbers, one for each arm"
            raise EnvError(f"{env_id}: {name} must be {wanted}, got {values.tolist()}.")
    if (stds < 0).any():
        raise EnvError(f"{env_id}: stds must not be negative, got {stds.tolist()}.")
    return Bandit(request, means, stds, whole_option(request, "episode_length", 10))


def _numbers(request: EnvRequest, name: str, default: Any) -> np.ndarray:
    value = request.env_kwargs.get(name, default)
    try:
        return np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError) as error:
        raise EnvError(f"{request.env_id}: {name} must be numbers, got {value!r}.") from error


# -- memory tasks ---------------------------------------------------------------------------------


N_SUITS, DECK = 4, 52
TASKS: dict[str, dict[str, int]] = {
    "Memory/RepeatPreviousEasy-v0": {"k": 4, "decks": 1},
    "Memory/RepeatPreviousMedium-v0": {"k": 32, "decks": 2},
    "Memory/RepeatPreviousHard-v0": {"k": 64, "decks": 3},
    "Memory/RepeatFirstEasy-v0": {"decks": 1},
    "Memory/RepeatFirstMedium-v0": {"decks": 8},
    "Memory/RepeatFirstHard-v0": {"decks": 16},
}
SOLVED = 0.95


class Repeat(OwnEnv):
    """N decks of cards (POPGym, Morad et al. 2023, written anew): the action names the suit of the
    card shown `k` cards ago or, with None, of the first one. A right answer pays 1 / n and a wrong
    one -1 / n, where n is the number of answers that count. An episode shows every card once."""

    def __init__(self, request: EnvRequest, k: int | None, decks: int) -> None:
        observation = gymnasium.spaces.Box(0.0, 1.0, (N_SUITS,), np.float32)
        action = gymnasium.spaces.Discrete(N_SUITS)
        super().__init__(request, observation, action, threshold=SOLVED)
        self._k, self._n_cards = k, decks * DECK
        self._suits = np.zeros((self.n_envs, self._n_cards), np.int64)
        self._shown = np.zeros(self.n_envs, np.int64)  # index of the card that is shown

    def _begin(self, rows: np.ndarray) -> None:
        deck = np.arange(self._n_cards) % N_SUITS
        for row in np.flatnonzero(rows):
            self._suits[row] = self._rng.permutation(deck)
        self._shown[rows] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        asked = np.zeros(self.n_envs, np.int64) if self._k is None else self._shown - self._k
        counts = asked >= 0
        answer = self._suits[np.arange(self.n_envs), np.maximum(asked, 0)]
        size = 1.0 / (self._n_cards - (self._k or 0))
        reward = np.where(counts, np.where(actions == answer, size, -size), 0.0)
        terminated = self._shown + 1 >= self._n_cards
        self._shown = np.minimum(self._shown + 1, self._n_cards - 1)
        return reward.astype(np.float32), terminated, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> np.ndarray:
        suit = self._suits[np.arange(self.n_envs), self._shown]
        return np.eye(N_SUITS, dtype=np.float32)[suit]


def make_memory(request: EnvRequest) -> VectorEnv:
    """Build a task from its id; env_kwargs go before what the id stands for."""
    env_id = request.env_id
    if env_id not in TASKS:
        raise EnvError(f"Unknown environment {env_id!r}. Memory tasks: {', '.join(TASKS)}.")
    refuse_unknown(request, list(TASKS[env_id]))
    given = {name: whole_option(request, name, usual) for name, usual in TASKS[env_id].items()}
    k, decks = given.get("k"), given["decks"]
    if k is not None and k >= decks * DECK:
        raise EnvError(f"{env_id}: k {k} must be below the number of cards, {decks * DECK}.")
    return Repeat(request, k, decks)
