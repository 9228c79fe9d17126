"""Replay storage: a ring of rows x envs, from which n-step transitions are gathered.

    replay = Replay(100_000, n_envs, observation_space, action_space)
    replay.add(rollout)
    index = replay.sample(256, rng)
    batch = replay.transitions(index, n_step=3, gamma=0.99)

Rows are stored as the rollout has them, reset rows too: a reset row holds the true final
observation of the episode before it. So no next observation is stored, it is the observation of
the row after; and the row after the newest one, the head, holds the newest observation until the
next rollout writes over it. An n-step return goes on while the row after is `valid`; the first one
that is not (a reset row, the head, a break) holds the observation to bootstrap from, unless the
step before it `terminated`. Nothing else is needed to keep episodes apart, and every step can be
sampled as soon as it is added, with fewer than n steps where there are no more yet.

Rows count from the first one ever (`n_added` of them so far) and row r lies in slot r % n_rows. An
index (a leaf) is slot * n_envs + env. The newest ceil(capacity / n_envs) rows can be sampled, that
is at least `capacity` places; reset rows take some of them. Beyond those rows there is the head
and, with frame stacks, as many older rows as a stack looks back.
"""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from gymnasium_solver.data.columns import Space, allocate, array_bytes, layout_of
from gymnasium_solver.data.frame_stacks import FrameStacks
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError

_PER_OBSERVATION = ("obs", "mask", "older")


class Transitions(NamedTuple):
    """B transitions of up to n steps: target = reward + discount * value(next_obs)."""

    obs: np.ndarray  # [B, ...]
    actions: np.ndarray  # int64[B] where discrete, float32[B, A] otherwise
    reward: np.ndarray  # float32[B]: discounted sum
    discount: np.ndarray  # float32[B]: gamma ** steps, 0 where terminated
    next_obs: np.ndarray  # [B, ...]
    next_mask: np.ndarray | None  # bool[B, A]: legal actions at next_obs, where an env has masks


class Replay:
    def __init__(
        self,
        capacity: int,
        n_envs: int,
        observation_space: Space,
        action_space: Space,
        *,
        n_masked_actions: int | None = None,
        frame_stack: int = 1,
        directory: str | None = None,
    ) -> None:
        """`capacity` in transitions, over all envs. `frame_stack` k > 1: observations are k frames
        along their first axis, of which only the newest is stored. `directory`: keep the arrays in
        memory-mapped files there, which vanish with the process."""
        layout = layout_of(
            capacity, n_envs, observation_space, action_space, n_masked_actions, frame_stack
        )
        self.n_envs, self.n_rows = n_envs, layout["valid"][0][0]
        self.n_valid = 0  # transitions that can be sampled
        self._n_added = self._first_row = 0
        self._n_leaves = self.n_rows * n_envs
        self._is_discrete = isinstance(action_space, spaces.Discrete)
        self._frames = FrameStacks(frame_stack, observation_space) if frame_stack > 1 else None
        self._n_look_back = frame_stack - 1
        self._columns = {name: allocate(*form, directory) for name, form in layout.items()}
        self._flat = {
            name: column.reshape(self._n_leaves, *column.shape[2:])
            for name, column in self._columns.items()
        }
        self._valid = self._columns["valid"]
        self.transition_bytes = 2 * array_bytes(
            observation_space.shape or (), observation_space.dtype
        )

    @classmethod
    def estimate_bytes(
        cls,
        capacity: int,
        n_envs: int,
        observation_space: Space,
        action_space: Space,
        *,
        n_masked_actions: int | None = None,
        frame_stack: int = 1,
    ) -> int:
        """What the arrays of such a replay take; nothing is allocated."""
        layout = layout_of(
            capacity, n_envs, observation_space, action_space, n_masked_actions, frame_stack
        )
        return sum(array_bytes(*form) for form in layout.values())

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    # -- adding -----------------------------------------------------------------------------

    def add(self, rollout: Rollout) -> None:
        """Append a rollout of any length; of one longer than the ring the newest rows stay."""
        if rollout.obs.shape[1] != self.n_envs:
            raise ValueError(f"a rollout of {rollout.obs.shape[1]} envs, expected {self.n_envs}")
        is_break = self._n_added > 0 and (rollout.is_restart or self._lacks_reset_row(rollout))
        columns = {
            "obs": rollout.obs,
            "actions": rollout.actions,
            "reward": rollout.reward,
            "terminated": rollout.terminated,
            "truncated": rollout.truncated,
            "valid": rollout.valid,
        }
        if self._frames is not None:
            columns["obs"], columns["older"] = self._single_frames(self._frames, rollout, is_break)
        if "mask" in self._columns:
            if rollout.mask is None:
                raise ValueError("a rollout without mask, in a replay of an env with action masks")
            columns["mask"] = rollout.mask
        if is_break:
            self._step_over_head()
        self._write(self._n_added, columns)

    def _lacks_reset_row(self, rollout: Rollout) -> bool:
        """An episode ended in the newest row, and its reset row was left out as it holds no env
        step: the collector does so where a rollout would hold nothing else."""
        newest = (self._n_added - 1) % self.n_rows
        columns = self._columns
        done = columns["terminated"][newest] | columns["truncated"][newest]
        return bool((done & rollout.valid[0]).any())

    def _step_over_head(self) -> None:
        """Keep the head as a row that is not valid: no chain goes on from it into what follows."""
        slot = self._n_added % self.n_rows
        for name in ("actions", "reward", "terminated", "truncated"):
            self._columns[name][slot] = 0  # what is left there of the row that was overwritten
        self._n_added += 1

    def _write(self, start: int, columns: dict[str, np.ndarray]) -> None:
        """Write rows from the absolute row `start` on; what follows them is the head."""
        n_rows, n = self.n_rows, len(columns["valid"])
        n_skipped = max(0, n - n_rows + 1)
        slot = (start + n_skipped) % n_rows
        room = n_rows - slot
        n_kept = n - n_skipped
        self.n_valid -= self._count_valid(slot, n_kept + 1)
        for name, rows in columns.items():
            kept, target = rows[n_skipped:] if n_skipped else rows, self._columns[name]
            if len(kept) <= room:
                target[slot : slot + len(kept)] = kept
            else:
                target[slot:] = kept[:room]
                target[: len(kept) - room] = kept[room:]
        self._n_added = start + n
        self._valid[self._n_added % n_rows] = False
        self.n_valid += self._count_valid(slot, n_kept)
        if self._n_look_back and self.oldest_row > 0:
            # The oldest rows can no longer be sampled: the frames before them are gone.
            rows = np.arange(self.oldest_row, self.oldest_row + self._n_look_back) % n_rows
            self.n_valid -= int(np.count_nonzero(self._valid[rows]))
            self._valid[rows] = False

    def _count_valid(self, slot: int, n: int) -> int:
        count = int(np.count_nonzero(self._valid[slot : slot + n]))
        if slot + n > self.n_rows:
            count += int(np.count_nonzero(self._valid[: slot + n - self.n_rows]))
        return count

    def _single_frames(
        self, frames: FrameStacks, rollout: Rollout, is_break: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The newest frame of each observation, and what to look back for to rebuild its stack."""
        stacks = frames.split(rollout.obs)
        if self._n_added == 0:  # maybe amid an episode (a resume): all frames of the first stack
            older = np.zeros((frames.n_frames, self.n_envs), np.uint8)
            older[-1] = self._n_look_back
            nothing = np.zeros((self._n_look_back, self.n_envs), bool)
            first = {"obs": stacks[0].swapaxes(0, 1), "older": older, "valid": nothing}
            self._write(0, first)
        older = np.empty(stacks.shape[:2], np.uint8)
        older[0] = self._columns["older"][self._n_added % self.n_rows]
        if is_break:
            head = self.leaves(self._n_added, self._n_added + 1)
            before = frames.split(self._observations(head))
            older[0] = frames.older(stacks[0], before, older[0])
        for t in range(1, len(stacks)):
            older[t] = frames.older(stacks[t], stacks[t - 1], older[t - 1])
        return stacks[:, :, -1], older

    # -- sampling ---------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n indices drawn uniformly, with replacement, from the transitions stored."""
        self.check_not_empty()
        n_leaves = min(self._n_added, self.n_rows) * self.n_envs
        found: list[np.ndarray] = []
        while n > 0:
            n_drawn = n
            if self.n_valid < n_leaves:
                n_drawn = min(int(1.05 * n * n_leaves / self.n_valid) + 8, 2**20)
            # Not rng.integers: twice the time for a batch. The product stays below n_leaves.
            index = (rng.random(n_drawn) * n_leaves).astype(np.int64)
            if self.n_valid < n_leaves:
                index = index[self.is_valid(index)][:n]
            found.append(index)
            n -= len(index)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def check_not_empty(self) -> None:
        if self.n_valid == 0:
            raise ConfigError(
                "the replay buffer holds no transition to sample. Collect env steps before the "
                "first update (a longer warm-up)."
            )

    def newest(self) -> np.ndarray:
        """Indices of the newest row that holds transitions, one for each env that made a step."""
        for row in range(self._n_added - 1, self.oldest_row - 1, -1):
            index = self.leaves(row, row + 1)
            if (is_valid := self.is_valid(index)).any():
                return index[is_valid]
        return np.empty(0, np.int64)

    def transitions(
        self,
        index: np.ndarray,
        n_step: int,
        gamma: float,
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
    ) -> Transitions:
        """The transitions at valid indices, each of at most n_step steps of one episode.

        Rewards are scaled, then clipped to +-reward_clip, before they are summed."""
        flat, n_envs = self._flat, self.n_envs
        if n_step == 1:
            last = index
            reward = _shaped(flat["reward"].take(index), reward_scale, reward_clip)
            is_open = np.logical_not(flat["terminated"].take(index))
            discount = is_open * np.float32(gamma)
        else:
            chain = index + np.arange(0, n_step * n_envs, n_envs)[:, None]  # [n, B]
            goes_on = flat["valid"].take(chain, mode="wrap")
            # A reset row is not valid; but where only a life is lost none follows.
            goes_on[1:] &= ~flat["terminated"].take(chain[:-1], mode="wrap")
            np.logical_and.accumulate(goes_on, axis=0, out=goes_on)
            n_steps = goes_on.sum(axis=0)
            last = index + (n_steps - 1) * n_envs
            powers = (gamma ** np.arange(n_step + 1)).astype(np.float32)
            rewards = _shaped(flat["reward"].take(chain, mode="wrap"), reward_scale, reward_clip)
            rewards *= powers[:-1, None]
            reward = np.where(goes_on, rewards, np.float32(0)).sum(axis=0)
            discount = powers.take(n_steps)
            discount[flat["terminated"].take(last, mode="wrap")] = 0
        following = last + n_envs  # may lie past the end: every gather wraps around
        actions = flat["actions"].take(index, axis=0)
        return Transitions(
            self._observations(index),
            actions.astype(np.int64) if self._is_discrete else actions,
            reward,
            discount,
            self._observations(following),
            flat["mask"].take(following, axis=0, mode="wrap") if "mask" in flat else None,
        )

    def masks(self, index: np.ndarray) -> np.ndarray | None:
        """Legal actions bool[B, A] at the observations themselves, where an env has masks."""
        return self._flat["mask"].take(index, axis=0) if "mask" in self._flat else None

    def is_valid(self, index: np.ndarray) -> np.ndarray:
        return self._flat["valid"].take(index)

    def leaves(self, start: int, stop: int) -> np.ndarray:
        """The indices of absolute rows, all envs of a row together."""
        return np.arange(start * self.n_envs, stop * self.n_envs) % self._n_leaves

    def changed_since(self, n_added: int) -> np.ndarray:
        """Indices whose row was written, or can no longer be sampled, since `n_added` was so."""
        changed = self.leaves(max(n_added, self._n_added + 1 - self.n_rows), self._n_added + 1)
        if not self._n_look_back:
            return changed
        past = self.leaves(self.oldest_row, self.oldest_row + self._n_look_back)
        return np.concatenate([past, changed])

    def _observations(self, index: np.ndarray) -> np.ndarray:
        if self._frames is None:
            return self._flat["obs"].take(index, axis=0, mode="wrap")
        return self._frames.rebuild(self._flat["obs"], self._flat["older"], index, self.n_envs)

    # -- saving, by absolute rows -----------------------------------------------------------

    @property
    def n_added(self) -> int:
        """Rows ever written; the head is row n_added."""
        return self._n_added

    @property
    def oldest_row(self) -> int:
        """The first absolute row still stored."""
        return max(self._first_row, self._n_added - self.n_rows + 1)

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies of stored rows; what belongs to an observation has one more, that of row `stop`.

        Rows saved piece by piece as they come, and given to `put_rows` in that order, rebuild
        this very state: later rows do not change earlier ones."""
        if not self.oldest_row <= start <= stop <= self._n_added:
            raise ValueError(
                f"rows {start} to {stop}: those stored are {self.oldest_row} to {self._n_added}"
            )
        slots = np.arange(start, stop + 1) % self.n_rows
        return {
            name: column[slots if name in _PER_OBSERVATION else slots[:-1]]
            for name, column in self._columns.items()
        }

    def put_rows(self, start: int, arrays: dict[str, np.ndarray]) -> None:
        """Append what `rows(start, ...)` gave. Rows before a gap are dropped."""
        given = {name: rows.shape[1:] for name, rows in arrays.items()}
        expected = {name: column.shape[1:] for name, column in self._columns.items()}
        if given != expected or start < self._n_added:
            raise RunError(
                f"saved replay rows from row {start} on, of shapes {given}; expected them from "
                f"row {self._n_added} on, of shapes {expected}. Resume with the env, n_envs and "
                "replay_frame_stack that the run was started with, or without its saved replay."
            )
        if start > self._n_added:
            self._valid[:] = False
            self.n_valid, self._first_row = 0, start
        self._write(start, arrays)


def _shaped(reward: np.ndarray, scale: float, clip: float | None) -> np.ndarray:
    """Scaled, then clipped, in place."""
    if scale != 1.0:
        reward *= scale
    if clip is not None:
        np.clip(reward, -clip, clip, out=reward)
    return reward
