"""Cuts the rows of a rollout into sequences of equal length, for networks with memory.

    cut = Cut(n_rows, length)
    cut(rows)               # [T, N, ...] -> [S, L, ...]
    cut.starts(rows)        # [T, N, ...] -> [S, ...]: the first row of each sequence

There are S = ceil(T / L) * N sequences. If T is not a multiple of L, the last sequence of every env
repeats its last row; `cut.valid(valid)` marks these copies as invalid.
"""

import torch
from torch import Tensor


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
