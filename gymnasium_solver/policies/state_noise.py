"""The exploration matrix of gSDE (nets/sde.py): one per env, kept for many steps.

It is drawn anew at the start of every rollout and, with a `sample_freq`, after so many steps. It is
part of the policy's carry, so that a checkpoint in the middle of a rollout of matrices loses
nothing. The end of an episode does not change it, as in SB3.
"""

import numpy as np

from gymnasium_solver.nets.sde import SdeHead

MATRIX, AGE = "sde_matrix", "sde_age"
Carry = dict[str, np.ndarray]


class StateNoise:
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

    def __call__(
        self, features: np.ndarray, carry: Carry, rng: np.random.Generator
    ) -> tuple[np.ndarray, Carry]:
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
