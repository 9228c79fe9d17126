"""The memory of an off-policy agent: replay buffer, sampling and n-step returns in one object.

    memory = Memory(replay, n_step=3, gamma=0.99, batch_size=64, rng=rng, prioritized=True)
    memory.add(rollout)
    for sample in memory.samples(n_updates, beta=0.4):
        for batch in split(sample, 64):
            td_error = ...                     # from batch.rows
            memory.update_priorities(batch.index, td_error)

The replay buffer saves its rows itself (`replay.rows`); `state()` holds the rest.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.data.hindsight import Hindsight
from gymnasium_solver.data.priorities import Priorities
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.tree import map_tree

# Gathering has a fixed cost per call, so many uniform batches are gathered at once. More than this
# many would be evicted from the CPU cache before use.
_MAX_GATHERED = 16_384
_MAX_GATHERED_BYTES = 4 * 2**20
_N_TRIES = 8  # draws of sequences by priority


class Sample(NamedTuple):
    """Rows that were drawn: one batch, or several batches of transitions (`split`)."""

    rows: Any  # Transitions or Sequences; None: the caller gathers them
    weight: np.ndarray  # float32[B]: importance weights; ones for uniform sampling
    index: np.ndarray  # type: ignore[assignment]  # int64[B]: for update_priorities


def split(sample: Sample, size: int) -> Iterator[Sample]:
    """The batches of a sample."""
    for start in range(0, len(sample.index), size):
        yield map_tree(itemgetter(slice(start, start + size)), sample)


class Memory:
    def __init__(
        self,
        replay: Replay,
        *,
        n_step: int,
        gamma: float,
        batch_size: int,
        rng: np.random.Generator,
        prioritized: bool = False,
        alpha: float = 0.5,
        eps: float = 1e-6,
        combined: bool = False,
        hindsight: Hindsight | None = None,
    ) -> None:
        """`combined`: every batch includes the newest transitions (Zhang & Sutton 2017).
        `hindsight`: replaces goals in every batch; needs a replay with `has_goals`."""
        self.replay, self.n_step, self.gamma = replay, n_step, gamma
        self.batch_size, self.rng, self.combined = batch_size, rng, combined
        self.hindsight = hindsight
        self.priorities = (
            Priorities(replay.n_rows * replay.n_envs, alpha=alpha, eps=eps) if prioritized else None
        )

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return self.replay.n_valid

    def add(self, rollout: Rollout) -> None:
        n_added = self.replay.n_added
        self.replay.add(rollout)
        if self.priorities is not None:
            index = self.replay.changed_since(n_added)
            self.priorities.put_new(index, self.replay.is_valid(index))

    def samples(
        self,
        n_batches: int,
        beta: float = 1.0,
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
    ) -> Iterator[Sample]:
        """n_batches batches, in samples of several where these are uniform (`split`), drawn lazily:
        exhaust the iterator before the next `add` or `state`. `beta`: exponent of the importance
        weights, 0 to 1."""
        her, shaping = self.hindsight, (reward_scale, reward_clip)
        for sample in self._drawn(n_batches, beta):
            new = None if her is None else her.draw(self.replay, sample.index, self.rng)
            given = (sample.index, self.n_step, self.gamma, *shaping, new)
            yield sample._replace(rows=self.replay.transitions(*given))

    def draws(self, n_batches: int, beta: float = 1.0) -> Iterator[Sample]:
        """The same batch by batch, of which only indices and weights are needed."""
        for sample in self._drawn(n_batches, beta):
            yield from split(sample, self.batch_size)

    def _drawn(self, n_batches: int, beta: float) -> Iterator[Sample]:
        """By priority one batch at a time, since priorities change in between; uniformly many."""
        size, replay = self.batch_size, self.replay
        replay.check_not_empty()
        most, source = 1, self.priorities or replay
        if self.priorities is None:
            most = min(_MAX_GATHERED, _MAX_GATHERED_BYTES // replay.transition_bytes) // size
        while n_batches > 0:
            n = min(max(1, most), n_batches)
            n_batches -= n
            index = source.sample(n * size, self.rng)
            if self.combined:  # the end of every batch is the newest transitions
                newest = replay.newest()[:size]
                index.reshape(n, size)[:, size - len(newest) :] = newest
            yield Sample(None, self._weights(index, beta), index)

    def _weights(self, index: np.ndarray, beta: float) -> np.ndarray:
        """Importance weights: ones where sampling is uniform."""
        if self.priorities is None:
            return np.ones(len(index), np.float32)
        return self.priorities.weights(index, self.replay.n_valid, beta)

    def sequences(
        self, n: int, length: int, beta: float = 1.0, crosses_episodes: bool = False,
        carry_row: int = 0,
    ) -> Sample:  # fmt: skip
        """n sequences of `length` rows, for policies with memory. Rows after the end of the first
        row's episode are not valid, unless `crosses_episodes`. `carry_row`: the row before which
        the carry is taken."""
        index = self._sequence_starts(n, length)
        rows = self.replay.sequences(index, length, carry_row)
        rows = rows if crosses_episodes else rows.within_episode()
        return Sample(rows, self._weights(index, beta), index)

    def _sequence_starts(self, n: int, length: int) -> np.ndarray:
        """Start indices [n] of sequences."""
        replay, found = self.replay, np.empty(0, np.int64)
        for _ in range(_N_TRIES):  # by priority: the newest rows are too close to the end
            if self.priorities is None or len(found) == n:
                break
            index = self.priorities.sample(2 * n, self.rng)
            is_whole = replay.row_of(index) + length <= replay.n_added
            found = np.concatenate([found, index[is_whole]])[:n]
        more = n - len(found)
        return np.concatenate([found, replay.sample_sequences(more, length, self.rng)])

    def update_priorities(self, index: np.ndarray, td_error: np.ndarray) -> None:
        """Set priorities from TD errors (any sign); no effect with uniform sampling."""
        if self.priorities is not None:
            self.priorities.update(index, td_error)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON: everything except the rows, which `replay.rows` returns."""
        extra = {"n_added": self.replay.n_added, "rng": self.rng.bit_generator.state}
        if self.priorities is None:
            return {}, extra
        arrays = {"priorities": self.priorities.leaves.copy()}
        return arrays, extra | {"max_priority": self.priorities.max_leaf}

    def load_state(self, arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> None:
        """Call after restoring the rows of the replay buffer."""
        if self.replay.n_added != extra["n_added"]:
            raise RunError(
                f"the saved replay buffer ends at row {self.replay.n_added}, but its state is of "
                f"row {extra['n_added']}: rows are missing. Use another checkpoint of this run."
            )
        if self.priorities is not None:
            leaves = arrays.get("priorities")
            if leaves is None or len(leaves) != self.priorities.n_leaves:
                raise RunError(
                    f"priorities of {0 if leaves is None else len(leaves)} transitions were "
                    f"saved, expected {self.priorities.n_leaves}. Resume with the run's original "
                    "buffer_size, n_envs and prioritized."
                )
            largest = float(extra["max_priority"])
            is_empty = self.replay.n_valid > 0 and not leaves.any()
            if is_empty or not (np.isfinite(leaves).all() and (leaves >= 0).all() and largest > 0):
                raise RunError(
                    "the saved priorities are not positive numbers: they are damaged. Use another "
                    "checkpoint of this run."
                )
            self.priorities.load(leaves, largest)
        self.rng.bit_generator.state = extra["rng"]
