"""Sequences for networks with memory: cut from a rollout, or sampled from a replay with targets.

    cut = Cut(n_rows, length)
    cut(rows)               # [T, N, ...] -> [S, L, ...]
    cut.starts(rows)        # [T, N, ...] -> [S, ...]: the first row of each sequence

There are S = ceil(T / L) * N sequences. If T is not a multiple of L, the last sequence of every env
repeats its last row; `cut.valid(valid)` marks these copies as invalid.

    batch = sequence_batch(rows, weight, burn_in, n_step, gamma, scale, clip)     # rows of a Replay
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.data.replay import Sequences
from gymnasium_solver.tree import map_tree


class Cut:
    def __init__(self, n_rows: int, length: int):
        self.n_rows, self.length = n_rows, length
        n_pieces = -(-n_rows // self.length)
        rows = torch.arange(n_pieces * self.length)
        self._is_copy = rows >= n_rows
        self._index = rows.clamp(max=n_rows - 1)

    def __call__(self, rows: Tensor) -> Tensor:
        rows = rows[: self.n_rows]
        if bool(self._is_copy.any()):
            rows = rows[self._index.to(rows.device)]
        pieces = rows.unflatten(0, (-1, self.length))  # [K, L, N, ...]
        return pieces.transpose(1, 2).flatten(0, 1).contiguous()

    def starts(self, rows: Tensor) -> Tensor:
        return rows[: self.n_rows : self.length].flatten(0, 1)

    def valid(self, valid: Tensor) -> Tensor:
        """[T, N] -> [S, L]: valid rows, without copies."""
        padded = valid[self._index.to(valid.device)]
        padded[self._is_copy] = False
        pieces = padded.unflatten(0, (-1, self.length))
        return pieces.transpose(1, 2).flatten(0, 1).contiguous()


class SequenceBatch(NamedTuple):
    """B sequences: R = burn_in + L + 1 rows of observations, L rows to learn from. Arrays on the
    host, tensors for a loss."""

    obs: Any  # tree of [B, R, ...]
    is_first: Any  # [B, R]
    carry: Any  # of the acting policy, before the first row: a tree of [B, ...]
    actions: Any  # [B, L] discrete, or [B, L, A]
    reward: Any  # discounted n-step rewards [B, L]
    discount: Any  # of the bootstrapped value, 0 after a termination [B, L]
    place: Any  # row that is bootstrapped from, 1 to L after burn-in [B, L]
    valid: Any  # rows to learn from, as numbers [B, L]
    weight: Any  # importance weight [B]
    mask: Any = None  # legal actions after burn-in [B, L + 1, A]
    noise: Any = None  # standard normal noise for the loss [B, L, A]


def n_step_targets(
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    n_step: int,
    gamma: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row [L, B]: the discounted reward of up to n steps of its episode within the
    sequence, the discount of the value after them (0 after a termination), and its row."""
    n_rows = len(reward)
    total = np.zeros(reward.shape, np.float32)
    discount = np.zeros(reward.shape, np.float32)
    place = np.ones(reward.shape, np.int64)
    for t in range(n_rows):
        goes_on, factor = valid[t].copy(), np.ones(reward.shape[1], np.float32)
        last = np.full(reward.shape[1], t + 1)
        for k in range(t, min(t + n_step, n_rows)):
            goes_on = goes_on & valid[k]
            total[t] += np.where(goes_on, factor * reward[k], 0.0)
            factor = np.where(goes_on, factor * np.float32(gamma), factor)
            factor = np.where(goes_on & terminated[k], 0.0, factor)
            last = np.where(goes_on, k + 1, last)
            goes_on = goes_on & ~terminated[k] & ~truncated[k]
        discount[t], place[t] = factor, last
    return total, discount, place


def sequence_batch(
    rows: Sequences,
    weight: np.ndarray,
    burn_in: int,
    n_step: int,
    gamma: float,
    scale: float = 1.0,
    clip: float | None = None,
) -> SequenceBatch:
    """The arrays of a batch. Rewards of the environment are scaled, then clipped; a bonus is added
    as it is."""
    reward = rows.reward[burn_in:] * np.float32(scale)
    if clip is not None:
        reward = np.clip(reward, -clip, clip)
    if rows.bonus is not None:
        reward = reward + rows.bonus[burn_in:]
    ends = (rows.terminated[burn_in:], rows.truncated[burn_in:], rows.valid[burn_in:])
    targets = n_step_targets(reward, *ends, n_step, gamma)

    def first(array: np.ndarray) -> np.ndarray:  # the batch first
        return np.ascontiguousarray(np.swapaxes(array, 0, 1))

    return SequenceBatch(
        obs=map_tree(first, rows.obs),
        is_first=first(rows.is_first),
        carry=rows.carry,
        actions=first(rows.actions[burn_in:]),
        reward=first(targets[0]),
        discount=first(targets[1]),
        place=first(targets[2]),
        valid=first(rows.valid[burn_in:]).astype(np.float32),
        weight=weight.astype(np.float32),
        mask=None if rows.mask is None else first(rows.mask[burn_in:]),
    )
