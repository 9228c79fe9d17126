"""The last training episodes: returns, lengths and how they ended. Saved with every checkpoint."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.training.activity import Activity

EPISODE_WINDOW = 100


class Ended(NamedTuple):
    """Episodes that ended at the same step, [n] each."""

    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    success: np.ndarray | None = None
    parts: Mapping[str, np.ndarray] = {}

    def only(self, which: np.ndarray) -> "Ended":
        success = None if self.success is None else self.success[which]
        parts = {name: totals[which] for name, totals in self.parts.items()}
        columns = (self.returns[which], self.lengths[which], self.terminated[which])
        return Ended(*columns, success, parts)


class EpisodeStats:
    """What a collector knows of finished episodes; both kinds of collectors derive from it."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.lengths: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.truncations: deque[int] = deque(maxlen=EPISODE_WINDOW)
        """1 for each of these episodes that was cut off and did not terminate, else 0."""
        self.reward_parts: dict[str, deque[float]] = {}  # rewards added by shapers, by part
        self.successes: deque[int] = deque(maxlen=EPISODE_WINDOW)  # where the env reports it
        self.task_returns: dict[str, deque[float]] = {}  # where a run has several tasks
        self.n_episodes = 0
        self._statistics: tuple[int, dict[str, float]] = (0, {})
        """Of the windows when so many episodes had ended."""
        self.activity = Activity()  # replaced by that of the training loop

    def count_episodes(
        self,
        returns: np.ndarray,
        lengths: np.ndarray,
        terminated: np.ndarray,
        success: np.ndarray | None = None,
        parts: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Add finished episodes, [n] each."""
        self.returns.extend(returns.tolist())
        self.lengths.extend(lengths.tolist())
        self.truncations.extend((~terminated).astype(int).tolist())
        self.n_episodes += len(returns)
        self.activity.episodes = self.n_episodes
        if success is not None:
            self.successes.extend(success.astype(int).tolist())
        for name, totals in (parts or {}).items():
            window = self.reward_parts.setdefault(name, deque(maxlen=EPISODE_WINDOW))
            window.extend(totals.tolist())

    def statistics(self) -> dict[str, float]:
        """The metrics of returns, lengths and truncations; {} before the first episode ended.

        Many epochs end no episode: then those of the epoch before are still right.
        """
        if not self.returns:
            return {}
        if self._statistics[0] != self.n_episodes:
            self._statistics = self.n_episodes, self._measured()
        return self._statistics[1]

    def _measured(self) -> dict[str, float]:
        # Plain Python: for a hundred numbers it is faster than NumPy.
        returns, lengths, cut = list(self.returns), self.lengths, self.truncations
        mean = sum(returns) / len(returns)
        spread = math.sqrt(sum([(x - mean) ** 2 for x in returns]) / len(returns))
        found = {
            "train/roll/ep_rew/mean": mean,
            "train/roll/ep_rew/last": returns[-1],
            "train/roll/ep_rew/std": spread,
            "train/roll/ep_rew/min": min(returns),
            "train/roll/ep_rew/max": max(returns),
            "train/roll/ep_len/mean": sum(lengths) / len(lengths),
            "train/roll/ep_len/last": lengths[-1],
        }
        if cut:  # a run that was started by an earlier version has none at first
            found["train/roll/ep_truncated"] = sum(cut) / len(cut)
        return found

    def forget_episodes(self) -> None:
        """Empty the windows: what follows is another environment."""
        self._statistics = 0, {}
        for window in (self.returns, self.lengths, self.truncations, self.successes):
            window.clear()
        self.reward_parts.clear()

    def episode_state(self) -> dict[str, Any]:
        return {
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "truncations": list(self.truncations),
            "reward_parts": {name: list(window) for name, window in self.reward_parts.items()},
            "successes": list(self.successes),
            "task_returns": {name: list(window) for name, window in self.task_returns.items()},
            "n_episodes": self.n_episodes,
        }

    def load_episodes(self, state: Mapping[str, Any]) -> None:
        self._statistics = 0, {}
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self.successes.extend(state.get("successes", []))
        for name, window in self.task_returns.items():
            window.extend(state.get("task_returns", {}).get(name, ()))
        self.truncations.extend(state.get("truncations", ()))
        for name, totals in state.get("reward_parts", {}).items():
            self.reward_parts[name] = deque(totals, maxlen=EPISODE_WINDOW)
        self.n_episodes = self.activity.episodes = state["n_episodes"]
