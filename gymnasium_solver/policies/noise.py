"""Exploration noise that is kept over time: correlated noise (Ornstein-Uhlenbeck and similar), and
the exploration matrix of gSDE (nets/sde.py). What is kept is part of the policy's carry."""

import numpy as np

from gymnasium_solver.nets.sde import SdeHead

MATRIX, AGE = "sde_matrix", "sde_age"
Carry = dict[str, np.ndarray]
Rng = np.random.Generator


class Noise:
    """Episodes start with new noise. `keeps` is the correlation of the noise between steps; 0:
    independent in each step."""

    def __init__(self, width: int, keeps: float):
        self.width, self.keeps = width, np.float32(keeps)

    def initial(self, n: int) -> Carry:
        """The carry of n envs; empty if the noise is independent."""
        return {"noise": np.zeros((n, self.width), np.float32)} if self.keeps else {}

    def normal(
        self, carry: Carry, is_first: np.ndarray, std: float, first_std: float, rng: Rng
    ) -> tuple[np.ndarray, Carry]:
        """keeps * (last noise) + std * (standard normal) [n, width]; first_std * (standard normal)
        at the start of an episode. Also returns the carry."""
        fresh = rng.standard_normal((len(is_first), self.width), dtype=np.float32)
        if not self.keeps:
            return np.float32(std) * fresh, carry
        lasting = self.keeps * carry["noise"] + np.float32(std) * fresh
        noise = np.where(is_first[:, None], np.float32(first_std) * fresh, lasting)
        return noise, {**carry, "noise": noise}

    def exponential(self, carry: Carry, is_first: np.ndarray, rng: Rng) -> tuple[np.ndarray, Carry]:
        """Standard exponentials [n, width]: the env's last ones with probability `keeps`, otherwise
        new ones."""
        n = len(is_first)
        fresh = rng.standard_exponential((n, self.width), dtype=np.float32)
        if not self.keeps:
            return fresh, carry
        is_new = is_first[:, None] | (rng.random((n, 1)) >= self.keeps)
        noise = np.where(is_new, fresh, carry["noise"])
        return noise, {**carry, "noise": noise}


class RepeatedNoise(Noise):
    """Noise that is kept for n steps, with a probability proportional to 1 / n^2 up to `most`
    (FlashSAC). Each env has a number of its own. The end of an episode does not change it."""

    def __init__(self, width: int, most: int):
        super().__init__(width, 0.0)
        chances = np.arange(1, most + 1, dtype=float) ** -2
        self._below = np.cumsum(chances / chances.sum())[:-1]

    def initial(self, n: int) -> Carry:
        return {"noise": np.zeros((n, self.width), np.float32), "noise_left": np.zeros(n, np.int64)}

    def normal(
        self, carry: Carry, is_first: np.ndarray, std: float, first_std: float, rng: Rng
    ) -> tuple[np.ndarray, Carry]:
        n, left = len(is_first), carry["noise_left"]
        fresh = np.float32(std) * rng.standard_normal((n, self.width), dtype=np.float32)
        steps = 1 + np.searchsorted(self._below, rng.random(n), side="right")
        is_due = left <= 0
        noise = np.where(is_due[:, None], fresh, carry["noise"])
        return noise, {**carry, "noise": noise, "noise_left": np.where(is_due, steps, left) - 1}


class StateNoise:
    """One matrix for each env. It is drawn anew at the start of every rollout and, with a
    `sample_freq`, after this many steps. It is in the carry so that a checkpoint in the middle of
    a rollout loses nothing. The end of an episode does not change it, as in SB3."""

    def __init__(self, head: SdeHead, sample_freq: int):
        """`sample_freq`: steps between two draws; -1: only at the start of a rollout."""
        self.head, self.sample_freq = head, sample_freq
        self._starts_rollout = False

    def begin_rollout(self) -> None:
        self._starts_rollout = True

    def initial(self, n: int) -> Carry:
        """The carry of n envs: no matrix yet."""
        shape = (n, *self.head.log_std.shape)
        return {MATRIX: np.zeros(shape, np.float32), AGE: np.full(n, -1)}

    def __call__(self, features: np.ndarray, carry: Carry, rng: Rng) -> tuple[np.ndarray, Carry]:
        """The noise [N, A] for features [N, H], and the carry after it."""
        matrix, age = carry[MATRIX], carry[AGE]
        is_due = (age < 0) | self._starts_rollout
        if self.sample_freq > 0:
            is_due |= age >= self.sample_freq
        self._starts_rollout = False
        if is_due.any():
            std = np.exp(self.head.log_std.detach().cpu().numpy())
            drawn = std * rng.standard_normal(matrix.shape, dtype=np.float32)
            matrix = np.where(is_due[:, None, None], drawn, matrix)
        noise = np.matmul(features[:, None, :], matrix)[:, 0]
        return noise, {**carry, MATRIX: matrix, AGE: np.where(is_due, 0, age) + 1}
