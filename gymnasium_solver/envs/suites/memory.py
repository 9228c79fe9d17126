"""Memory/<name>: tasks that only an agent with memory can solve, in NumPy.

Memory/RepeatPrevious<Easy|Medium|Hard>-v0   name the suit of the card shown `k` cards ago
Memory/RepeatFirst<Easy|Medium|Hard>-v0      name the suit of the first card

The tasks follow POPGym (Morad et al. 2023), written anew. Each step shows the suit of the next card
of a shuffled deck, one-hot, and the action names a suit. A right answer pays 1 / n and a wrong one
-1 / n, where n is the number of answers that count, so returns lie in [-1, 1] and a random agent
gets -0.5. The first `k` answers of RepeatPrevious pay nothing. An episode shows every card once and
then terminates.

env_kwargs: `k` (RepeatPrevious: 4, 32, 64) and `decks` of 52 cards (RepeatPrevious: 1, 2, 3;
RepeatFirst: 1, 8, 16). Solved: 0.95.
"""

import gymnasium
import numpy as np

from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.suites.own import Outcome, OwnEnv, refuse_unknown, whole_option
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError

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
    """N decks of cards. `k` None: the first card is asked for."""

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
