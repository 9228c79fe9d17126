"""How new a state is: visit counts in a table, and the states of the running episodes.

    states = StateIds(space, by="auto", n_bins=16, n_signs=24, table_bits=16, rng=rng)
    ids = states(obs)                            # [n] entries of a table
    bonus = VisitCounts(16)(ids, valid)          # [T, N] -> 1 / sqrt(visits) in the whole run
    visits = EpisodeVisits(8, 16)(start, ids, is_first)   # [T, N] visits in the episode

NumPy only. All arrays have fixed sizes, so that they can be saved and checked like weights.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from gymnasium_solver.spaces.observations import Obs, Space, obs_arrays, part_spaces
from gymnasium_solver.spaces.space_types import is_box, whole_range

MOST_BINNED = 8  # numbers in an observation that `auto` puts into bins
EPSILON, SAME_STATE = 1e-3, 0.008  # of the kernel, as in NGU
DISTANCE_DECAY = 1e-3  # of the running mean, once it has this many entries
EPISODE_BITS = 16  # largest table of one episode: it is cleared at each start
MOST_VISITS = 255  # in one episode; more are not counted


def columns(obs: Obs) -> np.ndarray:
    """All parts of the observations as numbers [n, width]."""
    parts = [part.reshape(len(part), -1).astype(np.float32) for _, part in obs_arrays(obs)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class StateIds:
    """Maps observations to entries of a table. Depends only on the space, the settings and the
    random numbers drawn at the start, so nothing of it is saved."""

    def __init__(
        self,
        space: Space,
        *,
        by: str,
        n_bins: int,
        n_signs: int,
        table_bits: int,
        rng: np.random.Generator,
    ):
        parts = part_spaces(space).values()
        self.low, self.high = _bounds(parts)
        width = len(self.low)
        if by == "auto":
            is_whole = all(np.issubdtype(part.dtype, np.integer) for part in parts)
            by = "exact" if is_whole else "bins" if width <= MOST_BINNED else "simhash"
        self.by, self.n_bins, self.table_bits = by, n_bins, table_bits
        self._odd = rng.integers(0, 2**63, width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._projection = rng.standard_normal((width, n_signs), dtype=np.float32)

    def __call__(self, obs: Obs) -> np.ndarray:
        """Entries [n] of observations [n, ...]."""
        x = columns(obs)
        if self.by == "exact":
            words = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
        elif self.by == "bins":
            words = np.floor(self.unit(x) * self.n_bins).clip(0, self.n_bins - 1).astype(np.uint64)
        else:
            signs = (self.unit(x) * 2 - 1) @ self._projection > 0
            powers = np.uint64(1) << np.arange(signs.shape[1], dtype=np.uint64)
            words = (signs * powers).sum(axis=1, dtype=np.uint64)[:, None]
            return self._entry(words @ self._odd[:1])
        return self._entry(words @ self._odd)

    def unit(self, x: np.ndarray) -> np.ndarray:
        """Numbers in [0, 1]: by their bounds, or squashed where they have none."""
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        width = np.where(finite & (self.high > self.low), self.high - self.low, 1.0)
        scaled = (x - np.where(finite, self.low, 0.0)) / width
        return np.where(finite, scaled, 0.5 + 0.5 * np.tanh(x / 2)).astype(np.float32)

    def _entry(self, mixed: np.ndarray) -> np.ndarray:
        """Entries of numbers [n] (multiply and xor-shift)."""
        for shift in (29, 32):
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return (mixed >> np.uint64(64 - self.table_bits)).astype(np.int64)


def _bounds(parts: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest numbers, of whole ones the next after the highest."""
    ends = []
    for part in parts:
        low, high = (part.low, part.high) if is_box(part) else whole_range(part)
        pair = low, high if is_box(part) else high + 1
        ends.append([np.broadcast_to(np.float64(end), part.shape or (1,)).ravel() for end in pair])
    low, high = (np.concatenate(column) for column in zip(*ends, strict=True))
    # Bounds such as 3.4e38 say nothing.
    return np.where(np.abs(low) > 1e6, -np.inf, low), np.where(np.abs(high) > 1e6, np.inf, high)


class VisitCounts:
    """Visits of every state over the whole run."""

    def __init__(self, table_bits: int):
        self.counts = np.zeros(2**table_bits, np.int64)

    def __call__(self, ids: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Count the visits [T, N] row by row; 1 / sqrt(visits), this one included."""
        return self.after_and_before(ids, ids, valid, valid)[0]

    def after_and_before(
        self, ids: np.ndarray, before: np.ndarray, valid: np.ndarray, counted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count the visits `counted` of the states that the steps lead to; 1 / sqrt(visits) of them
        and of the states `before` the steps, both after the row was counted."""
        novelty = np.zeros((2, *ids.shape), np.float32)
        for t in range(len(ids)):
            np.add.at(self.counts, ids[t][counted[t]], 1)
            both = np.stack([ids[t], before[t]])
            novelty[:, t] = 1.0 / np.sqrt(np.maximum(self.counts[both], 1))
        after, earlier = np.where(valid, novelty, 0.0).astype(np.float32)
        return after, earlier

    @property
    def n_states(self) -> int:
        return int(np.count_nonzero(self.counts))


class EpisodeVisits:
    """How often an environment has visited each state in its running episode."""

    def __init__(self, n_envs: int, table_bits: int):
        self.visits = np.zeros((n_envs, 2 ** min(table_bits, EPISODE_BITS)), np.uint8)
        self._shift = max(table_bits - EPISODE_BITS, 0)

    def __call__(
        self, start: np.ndarray | None, ids: np.ndarray, is_first: np.ndarray
    ) -> np.ndarray:
        """Visits [T, N] of the states, this one included. `start`: the states before the first row,
        at a restart; `is_first` [T, N]: the state opens an episode."""
        envs = np.arange(ids.shape[1])
        if start is not None:
            self.visits[:] = 0
            self.visits[envs, start >> self._shift] = 1
        found = np.zeros(ids.shape, np.int64)
        for t, entries in enumerate(ids >> self._shift):
            self.visits[is_first[t]] = 0
            earlier = self.visits[envs, entries]
            found[t] = np.minimum(earlier, MOST_VISITS - 1) + 1
            self.visits[envs, entries] = found[t]
        return found


class EpisodeMemory:
    """The states of the running episodes, as embeddings; novelty by the nearest of them (NGU).

    similarity = sqrt(sum over the k nearest of K), K = e / (max(d^2 / mean d^2 - x, 0) + e), where
    d is the distance to a neighbour and the mean is that of the k-th nearest. The bonus is inverse
    to it, on a scale where k neighbours at the mean distance give 1, the most; states without
    neighbours get that too. Badia et al. (2020) divide by a running mean of the bonus instead."""

    def __init__(self, n_envs: int, capacity: int, width: int, neighbors: int):
        self.states = np.zeros((n_envs, capacity, width), np.float32)
        self.n_seen = np.zeros(n_envs, np.int64)
        self.distance = np.zeros(2)  # running mean of d^2 to the k-th nearest, and its count
        self.neighbors = neighbors

    def __call__(self, start: np.ndarray | None, x: np.ndarray, is_first: np.ndarray) -> np.ndarray:
        """Bonus [T, N] of embeddings [T, N, width]; arguments as in EpisodeVisits."""
        if start is not None:
            self.n_seen[:] = 0
            for env in range(len(start)):
                self._add(env, start[env])
        bonus = np.zeros(x.shape[:2], np.float32)
        for t in range(len(x)):
            for env in range(x.shape[1]):
                if is_first[t, env]:
                    self.n_seen[env] = 0
                bonus[t, env] = self._novelty(env, x[t, env])
                self._add(env, x[t, env])
        return bonus

    def _add(self, env: int, x: np.ndarray) -> None:
        capacity = self.states.shape[1]
        self.states[env, int(self.n_seen[env]) % capacity] = x
        self.n_seen[env] += 1

    def _novelty(self, env: int, x: np.ndarray) -> float:
        n = min(int(self.n_seen[env]), self.states.shape[1])
        if n == 0:
            return 1.0
        squares = np.square(self.states[env, :n] - x).sum(axis=1)
        k = min(self.neighbors, n)
        nearest = np.partition(squares, k - 1)[:k]
        self.distance[1] += 1
        weight = max(DISTANCE_DECAY, 1.0 / self.distance[1])
        self.distance[0] += weight * (float(nearest.max()) - self.distance[0])
        away = nearest / max(float(self.distance[0]), 1e-8)
        kernel = EPSILON / (np.maximum(away - SAME_STATE, 0.0) + EPSILON)
        usual = EPSILON / (1.0 - SAME_STATE + EPSILON)
        similarity = float(kernel.mean())  # of fewer than k neighbours as of k
        return min(1.0, float(np.sqrt(usual / similarity)))
