"""Exploration noise that is correlated over time (Ornstein-Uhlenbeck and similar).

The last noise of each env is part of the policy's carry. Episodes start with new noise.
"""

import numpy as np


class Noise:
    """`keeps` is the correlation of the noise between steps; 0: independent in each step."""

    def __init__(self, width: int, keeps: float):
        self.width, self.keeps = width, np.float32(keeps)

    def initial(self, n: int) -> dict[str, np.ndarray]:
        """The carry of n envs; empty if the noise is independent."""
        return {"noise": np.zeros((n, self.width), np.float32)} if self.keeps else {}

    def normal(
        self,
        carry: dict[str, np.ndarray],
        is_first: np.ndarray,
        std: float,
        first_std: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """keeps * (last noise) + std * (standard normal) [n, width]; first_std * (standard normal)
        at the start of an episode. Also returns the carry."""
        fresh = rng.standard_normal((len(is_first), self.width), dtype=np.float32)
        if not self.keeps:
            return np.float32(std) * fresh, carry
        lasting = self.keeps * carry["noise"] + np.float32(std) * fresh
        noise = np.where(is_first[:, None], np.float32(first_std) * fresh, lasting)
        return noise, {**carry, "noise": noise}

    def exponential(
        self, carry: dict[str, np.ndarray], is_first: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Standard exponentials [n, width]: the env's last ones with probability `keeps`, otherwise
        new ones."""
        n = len(is_first)
        fresh = rng.standard_exponential((n, self.width), dtype=np.float32)
        if not self.keeps:
            return fresh, carry
        is_new = is_first[:, None] | (rng.random((n, 1)) >= self.keeps)
        noise = np.where(is_new, fresh, carry["noise"])
        return noise, {**carry, "noise": noise}
