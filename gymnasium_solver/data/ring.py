"""The storage of a replay buffer: a ring of rows x envs.

Rows are stored as in the rollout, including reset rows: a reset row holds the true final
observation of the previous episode. Next observations are not stored, because they are the
observations of the following rows. The row after the newest one, the head, holds the newest
observation until the next rollout overwrites it.

Rows are numbered from the start (`n_added` so far), and row r is in slot r % n_rows. An index (a
leaf) is slot * n_envs + env. The newest ceil(capacity / n_envs) rows can be sampled, which is at
least `capacity` entries, some of them reset rows. In addition there are the head and, with frame
stacks, the older rows that a stack needs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gymnasium_solver.data.columns import (
    Form,
    FrameStacks,
    allocate,
    are_actions,
    array_bytes,
    column_name,
    forms_of,
    layout_of,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Obs, Space, obs_arrays, part_spaces, take_rows

_OF_ROLLOUT = (
    "actions", "reward", "terminated", "truncated", "valid", "is_first", "mask", "bonus"
)  # fmt: skip
_PER_OBSERVATION = ("obs", "mask", "older", "is_first")  # kinds of columns that include the head
_OPEN = np.iinfo(np.int64).max  # as the end of an episode that is not over


class EpisodeBounds:
    """The first row of the episode of every stored step, and the row of its final observation.

    An episode is a run of valid rows of one env. The row after it (a reset row, a break, the head)
    holds its final observation. Both bounds follow from the valid rows, so they are not saved."""

    def __init__(self, n_rows: int, n_envs: int) -> None:
        self._n_rows = n_rows
        self._first = np.zeros((n_rows, n_envs), np.int64)
        self._final = np.zeros((n_rows, n_envs), np.int64)
        self._open_since = np.full(n_envs, -1)  # first row of the run that goes on; -1: none
        self._next_row = 0

    def add(self, start: int, valid: np.ndarray) -> None:
        """Append rows [T, N] that begin at the absolute row `start`; rows between are invalid."""
        if start > self._next_row:
            self._close(self._open_since >= 0)
            self._next_row = start
        for is_step in valid:
            was_open = self._open_since >= 0
            if (is_over := was_open > is_step).any():
                self._close(is_over)
            row, slot = self._next_row, self._next_row % self._n_rows
            since = np.where(was_open, self._open_since, row)
            self._first[slot], self._final[slot] = since, _OPEN
            self._open_since = np.where(is_step, since, -1)
            self._next_row = row + 1

    def _close(self, is_over: np.ndarray) -> None:
        """The runs of these envs ended: the next row holds their final observation."""
        for env in np.flatnonzero(is_over):
            oldest = max(int(self._open_since[env]), self._next_row - self._n_rows)
            slots = np.arange(oldest, self._next_row) % self._n_rows
            self._final[slots, env] = self._next_row
        self._open_since[is_over] = -1

    def of(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and final absolute row of the episodes of steps; of an open one, the head."""
        first, final = self._first.reshape(-1).take(index), self._final.reshape(-1).take(index)
        return first, np.minimum(final, self._next_row)


class Ring:
    """Rows of transitions; the oldest are overwritten."""

    def __init__(
        self,
        capacity: int,
        n_envs: int,
        observation_space: Space,
        actions: ActionKind,
        *,
        frame_stacks: Mapping[str, int] | None = None,
        carry: Mapping[str, np.ndarray] | None = None,
        directory: str | None = None,
        has_goals: bool = False,
        **columns: Any,
    ) -> None:
        """`capacity`: in transitions, over all envs. `frame_stacks` {part: k}: the part is a stack
        of k frames along its first axis, and only the newest frame is stored ("" names a plain
        array). `carry`: an example of the policy's carry, which is then stored with every row.
        `directory`: keep the arrays there in memory-mapped files, which are removed with the
        process. `has_goals`: keep track of episodes, for hindsight replay. `columns`: further
        arguments of `layout_of` (has_masks, has_bonus)."""
        stacks = {name: n for name, n in (frame_stacks or {}).items() if n > 1}
        sizes = capacity, n_envs, observation_space, actions
        layout = layout_of(*sizes, frame_stacks=frame_stacks, carry=carry, **columns)
        self.n_envs, self.n_rows = n_envs, layout["valid"][0][0]
        self.n_valid = 0  # transitions that can be sampled
        self.n_added = 0  # rows ever written; the head is row n_added
        self._first_row = 0
        self._n_leaves = self.n_rows * n_envs
        self._action_dtype, self._action_space = actions.dtype, actions.space
        parts = part_spaces(observation_space)
        self._parts = list(parts)
        self._is_dict = self._parts != [""]
        self._frames = {name: FrameStacks(n, parts[name]) for name, n in stacks.items()}
        self._carry_names = list(carry or {})
        self._n_look_back = max(stacks.values(), default=1) - 1
        self._columns = {name: allocate(*form, directory) for name, form in layout.items()}
        self._flat = {
            name: column.reshape(self._n_leaves, *column.shape[2:])
            for name, column in self._columns.items()
        }
        self._valid = self._columns["valid"]
        self.episodes = EpisodeBounds(self.n_rows, n_envs) if has_goals else None
        self.transition_bytes = 2 * sum(
            array_bytes(part.shape or (), part.dtype) for part in parts.values()
        )

    @staticmethod
    def estimate_bytes(*sizes: Any, **options: Any) -> int:
        """Size of the arrays in bytes, from arguments of `layout_of`; nothing is allocated."""
        return sum(array_bytes(*form) for form in layout_of(*sizes, **options).values())

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    def forms(self) -> dict[str, Form]:
        """Shape and dtype of each array, [rows, envs, ...]."""
        return {name: (column.shape, column.dtype) for name, column in self._columns.items()}

    @property
    def has_bonus(self) -> bool:
        """Whether rewards of extensions are stored."""
        return "bonus" in self._columns

    @property
    def oldest_row(self) -> int:
        """The first absolute row still stored."""
        return max(self._first_row, self.n_added - self.n_rows + 1)

    @property
    def oldest_whole_row(self) -> int:
        """The first absolute row whose frame stacks can be rebuilt."""
        return self.oldest_row + (self._n_look_back if self.oldest_row > 0 else 0)

    # -- adding -----------------------------------------------------------------------------

    def add(self, rollout: Rollout) -> None:
        """Append a rollout of any length. If it is longer than the ring, its newest rows are
        kept."""
        if (n_envs := rollout.valid.shape[1]) != self.n_envs:
            raise ValueError(f"the rollout has {n_envs} envs, expected {self.n_envs}")
        is_break = self.n_added > 0 and (rollout.is_restart or self._lacks_reset_row(rollout))
        if "mask" in self._columns and rollout.mask is None:
            raise ValueError(
                "the rollout has no action mask, but the replay buffer was created with masks"
            )
        columns = {name: getattr(rollout, name) for name in _OF_ROLLOUT if name in self._columns}
        for name, part in obs_arrays(rollout.obs):
            columns[column_name("obs", name)] = part
        if self._frames:
            self._add_single_frames(columns, rollout, is_break)
        for name in self._carry_names:
            columns[column_name("carry", name)] = rollout.carry[name][: len(rollout.valid)]
        if is_break:
            self._step_over_head()
        self._write(self.n_added, columns)

    def _lacks_reset_row(self, rollout: Rollout) -> bool:
        """Whether an episode ended in the newest row without a following reset row. Without a
        break, its return or its frame stack would continue into the next episode.

        A lost life does not count: it terminates the return, but the same episode's observations
        follow."""
        newest, is_step = (self.n_added - 1) % self.n_rows, rollout.valid[0]
        if (self._columns["truncated"][newest] & is_step).any():
            return True
        ended = np.flatnonzero(self._columns["terminated"][newest] & is_step)
        if len(ended) == 0:
            return False
        final = self.observations(self.leaves(self.n_added, self.n_added + 1)[ended])
        given = take_rows(take_rows(rollout.obs, 0), ended)
        parts = zip(obs_arrays(final), obs_arrays(given), strict=True)
        return not all(np.array_equal(a, b) for (_, a), (_, b) in parts)

    def _step_over_head(self) -> None:
        """Keep the head as an invalid row, so that nothing continues from it into the next rows."""
        slot = self.n_added % self.n_rows
        for name in ("actions", "reward", "bonus", "terminated", "truncated"):
            if name in self._columns:
                self._columns[name][slot] = 0  # remains of the overwritten row
        self.n_added += 1

    def _write(self, start: int, columns: dict[str, np.ndarray]) -> None:
        """Write rows starting at the absolute row `start`; the row after them becomes the head."""
        n_rows, n = self.n_rows, len(columns["valid"])
        n_skipped = max(0, n - n_rows + 1)
        slot, n_kept = (start + n_skipped) % n_rows, n - n_skipped
        room = n_rows - slot
        self.n_valid -= self._count_valid(slot, n_kept + 1)
        for name, rows in columns.items():
            kept, target = rows[n_skipped:] if n_skipped else rows, self._columns[name]
            if len(kept) <= room:
                target[slot : slot + len(kept)] = kept
            else:
                target[slot:] = kept[:room]
                target[: len(kept) - room] = kept[room:]
        if self.episodes is not None:
            self.episodes.add(start + n_skipped, columns["valid"][n_skipped:])
        self.n_added = start + n
        self._valid[self.n_added % n_rows] = False
        self.n_valid += self._count_valid(slot, n_kept)
        if self._n_look_back and self.oldest_row > 0:
            # The oldest rows can no longer be sampled, since the frames before them are
            # overwritten.
            rows = np.arange(self.oldest_row, self.oldest_row + self._n_look_back) % n_rows
            self.n_valid -= int(np.count_nonzero(self._valid[rows]))
            self._valid[rows] = False

    def _count_valid(self, slot: int, n: int) -> int:
        """Of n slots from this one on, around the end."""
        wrapped = self._valid[: max(0, slot + n - self.n_rows)]
        return int(np.count_nonzero(self._valid[slot : slot + n]) + np.count_nonzero(wrapped))

    def _add_single_frames(
        self, columns: dict[str, np.ndarray], rollout: Rollout, is_break: bool
    ) -> None:
        """Replace stacked parts with their newest frames and the data to rebuild the stacks."""
        if self.n_added == 0:  # maybe mid-episode (a resume): keep all frames of the first stacks
            self._write(0, self._look_back_rows(rollout))
        for name, frames in self._frames.items():
            obs = columns[column_name("obs", name)]
            stacks = frames.split(obs)
            older = np.empty(stacks.shape[:2], np.uint8)
            older[0] = self._columns[column_name("older", name)][self.n_added % self.n_rows]
            if is_break:
                head = self.leaves(self.n_added, self.n_added + 1)
                before = frames.split(self.part(name, head))
                older[0] = frames.older(stacks[0], before, older[0])
            for t in range(1, len(stacks)):
                older[t] = frames.older(stacks[t], stacks[t - 1], older[t - 1])
            columns[column_name("obs", name)] = stacks[:, :, -1]
            columns[column_name("older", name)] = older

    def _look_back_rows(self, rollout: Rollout) -> dict[str, np.ndarray]:
        """Invalid rows before the first one, which hold the older frames of its stacks."""
        n_rows = self._n_look_back
        rows = {"valid": np.zeros((n_rows, self.n_envs), bool)}
        for name, frames in self._frames.items():
            part = rollout.obs[name] if isinstance(rollout.obs, dict) else rollout.obs
            stack = frames.split(part[0]).swapaxes(0, 1)  # [k, N, *frame]
            column = np.zeros((n_rows + 1, *stack.shape[1:]), stack.dtype)
            column[n_rows + 1 - len(stack) :] = stack
            older = np.zeros((n_rows + 1, self.n_envs), np.uint8)
            older[-1] = frames.n_frames - 1
            rows[column_name("obs", name)] = column
            rows[column_name("older", name)] = older
        return rows

    # -- reading ----------------------------------------------------------------------------

    def is_valid(self, index: np.ndarray) -> np.ndarray:
        return self._flat["valid"].take(index)

    def row_of(self, index: np.ndarray) -> np.ndarray:
        """The absolute rows of indices."""
        return self.n_added - (self.n_added - index // self.n_envs) % self.n_rows

    def leaves(self, start: int, stop: int) -> np.ndarray:
        """The indices of absolute rows, grouped by row."""
        return np.arange(start * self.n_envs, stop * self.n_envs) % self._n_leaves

    def changed_since(self, n_added: int) -> np.ndarray:
        """Indices whose rows were written, or became unavailable, since `n_added` had this
        value."""
        changed = self.leaves(max(n_added, self.n_added + 1 - self.n_rows), self.n_added + 1)
        if not self._n_look_back:
            return changed
        past = self.leaves(self.oldest_row, self.oldest_row + self._n_look_back)
        return np.concatenate([past, changed])

    def observations(self, index: np.ndarray) -> Obs:
        if self._is_dict:
            return {name: self.part(name, index) for name in self._parts}
        return self.part("", index)

    def rewards(self, index: np.ndarray) -> np.ndarray:
        """The stored rewards float32[B]."""
        return self._flat["reward"].take(index)

    def part(self, name: str, index: np.ndarray) -> np.ndarray:
        """One part of the observations at indices, which may exceed the end."""
        column = self._flat[column_name("obs", name)]
        if name not in self._frames:
            return column.take(index, axis=0, mode="wrap")
        older = self._flat[column_name("older", name)]
        return self._frames[name].rebuild(column, older, index, self.n_envs)

    # -- saving, by absolute rows -----------------------------------------------------------

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies of stored rows; columns that belong to observations also include row `stop`.

        Saving rows in pieces as they come, and passing them to `put_rows` in that order, restores
        this exact state: later rows do not change earlier ones."""
        if not self.oldest_row <= start <= stop <= self.n_added:
            raise ValueError(
                f"rows {start} to {stop} are not stored; available: {self.oldest_row} to "
                f"{self.n_added}"
            )
        slots = np.arange(start, stop + 1) % self.n_rows
        return {
            name: column[slots if name.partition(".")[0] in _PER_OBSERVATION else slots[:-1]]
            for name, column in self._columns.items()
        }

    def put_rows(self, start: int, arrays: dict[str, np.ndarray]) -> None:
        """Append rows returned by `rows(start, ...)`. Rows before a gap are dropped."""
        given, expected = forms_of(arrays), forms_of(self._columns)
        if given != expected or start < self.n_added:
            raise RunError(
                f"the saved replay rows start at row {start} with shapes {given}; expected row "
                f"{self.n_added} and shapes {expected}. Resume with the env, n_envs and "
                "replay_frame_stack of the original run, or without its saved replay buffer."
            )
        if not are_actions(arrays["actions"], self._action_space):
            raise RunError(
                f"the saved replay rows from {start} on have actions that are not in "
                f"{self._action_space}: they are damaged. Use another checkpoint of this run."
            )
        if start > self.n_added:
            self._valid[:] = False
            self.n_valid, self._first_row = 0, start
        self._write(start, arrays)
