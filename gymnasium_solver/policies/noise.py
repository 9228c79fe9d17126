"""Exploration noise that lasts from step to step (Ornstein-Uhlenbeck and its like).

The last noise of each env is part of the policy's carry; an episode begins with fresh noise.
"""

import numpy as np


class Noise:
    """`keeps` says how much of the noise stays from step to step; 0: it is new in every step."""

    def __init__(self, width: int, keeps: float):
        self.width, self.keeps = width, np.float32(keeps)

    def initial(self, n: int) -> dict[str, np.ndarray]:
        """The carry of n envs; empty where nothing is kept."""
        return {"noise": np.zeros((n, self.width), np.float32)} if self.keeps else {}

    def normal(
        self,
        carry: dict[str, np.ndarray],
        is_first: np.ndarray,
        std: float,
        first_std: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """keeps * (last noise) + std * (unit normal) [n, width]; first_std * (unit normal) at the
        start of an episode. And the carry with it."""
        fresh = rng.standard_normal((len(is_first), self.width), dtype=np.float32)
        if not self.keeps:
            return np.float32(std) * fresh, carry
        lasting = self.keeps * carry["noise"] + np.float32(std) * fresh
        noise = np.where(is_first[:, None], np.float32(first_std) * fresh, lasting)
        return noise, {**carry, "noise": noise}

    def exponential(
        self, carry: dict[str, np.ndarray], is_first: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Unit exponentials [n, width]: an env's last ones with probability `keeps`, else new."""
        n = len(is_first)
        fresh = rng.standard_exponential((n, self.width), dtype=np.float32)
        if not self.keeps:
            return fresh, carry
        is_new = is_first[:, None] | (rng.random((n, 1)) >= self.keeps)
        noise = np.where(is_new, fresh, carry["noise"])
        return noise, {**carry, "noise": noise}
