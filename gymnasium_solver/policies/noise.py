"""Exploration noise that lasts from step to step (Ornstein-Uhlenbeck and its like)."""

from typing import Any

import numpy as np


class Noise:
    """Noise for each env that lasts: `keeps` says how much of it stays from step to step.

    0: it is new in every step. An episode begins with new noise in any case.
    """

    def __init__(self, width: int, keeps: float):
        self.width, self.keeps = width, np.float32(keeps)
        self.value = np.zeros((0, width), np.float32)
        self.is_first = np.ones((0, 1), bool)

    def normal(self, n: int, std: float, first_std: float, rng: np.random.Generator) -> np.ndarray:
        """keeps * (the last) + std * (a unit normal) [n, width]; at first first_std * (one)."""
        fresh = rng.standard_normal((n, self.width), dtype=np.float32)
        if not self.keeps:
            return np.float32(std) * fresh
        is_first = self._firsts(n)
        going_on = self.keeps * self.value + np.float32(std) * fresh
        self.value = np.where(is_first, np.float32(first_std) * fresh, going_on)
        return self.value

    def exponential(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Exponential [n, width]: with the chance `keeps` an env's last ones, or else new ones."""
        fresh = rng.standard_exponential((n, self.width), dtype=np.float32)
        if not self.keeps:
            return fresh
        is_new = self._firsts(n) | (rng.random((n, 1)) >= self.keeps)
        self.value = np.where(is_new, fresh, self.value)
        return self.value

    def _firsts(self, n: int) -> np.ndarray:
        """Where an episode begins [n, 1], told once."""
        if len(self.value) != n:  # the first step, or other envs than before
            self.value, self.is_first = np.zeros((n, self.width), np.float32), np.ones((n, 1), bool)
        is_first, self.is_first = self.is_first, np.zeros((n, 1), bool)
        return is_first

    def end_episodes(self, ended: np.ndarray) -> None:
        if len(self.is_first) == len(ended):
            self.is_first |= ended[:, None]

    def state(self) -> dict[str, Any]:
        return {"value": self.value.tolist(), "is_first": self.is_first.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.value = np.array(state["value"], np.float32).reshape(-1, self.width)
        self.is_first = np.array(state["is_first"], bool).reshape(-1, 1)
