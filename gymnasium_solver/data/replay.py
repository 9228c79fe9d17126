"""Replay buffer: a ring of rows x envs, from which n-step transitions are gathered.

    replay = Replay(100_000, n_envs, observation_space, action_space)
    replay.add(rollout)
    index = replay.sample(256, rng)
    batch = replay.transitions(index, n_step=3, gamma=0.99)

Rows are stored as in the rollout, including reset rows: a reset row holds the true final
observation of the previous episode. Next observations are not stored, because they are the
observations of the following rows. The row after the newest one, the head, holds the newest
observation until the next rollout overwrites it. An n-step return continues while the following row
is `valid`. The first invalid row (a reset row, the head, a break) holds the observation to
bootstrap from, unless the step before it `terminated`. This alone keeps episodes apart. Every step
can be sampled as soon as it is added, with fewer than n steps if there are no more yet.

Rows are numbered from the start (`n_added` so far), and row r is in slot r % n_rows. An index (a
leaf) is slot * n_envs + env. The newest ceil(capacity / n_envs) rows can be sampled, which is at
least `capacity` entries, some of them reset rows. In addition there are the head and, with frame
stacks, the older rows that a stack needs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gymnasium_solver.data.columns import (
    allocate,
    are_actions,
    array_bytes,
    column_name,
    forms_of,
    layout_of,
)
from gymnasium_solver.data.frame_stacks import FrameStacks
from gymnasium_solver.data.hindsight import EpisodeBounds, NewGoals
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.spaces.action_base import ActionKind
from gymnasium_solver.spaces.observations import Obs, Space, obs_arrays, part_spaces, take_rows

_PER_OBSERVATION = ("obs", "mask", "older", "is_first")  # kinds of columns that include the head


class Transitions(NamedTuple):
    """B transitions of up to n steps: target = reward + discount * value(next_obs)."""

    obs: Obs  # [B, ...]
    actions: np.ndarray  # int64[B] if discrete, float32[B, A] otherwise
    reward: np.ndarray  # float32[B]: discounted sum
    discount: np.ndarray  # float32[B]: gamma ** steps, 0 if terminated
    next_obs: Obs  # [B, ...]
    next_mask: np.ndarray | None  # bool[B, A]: legal actions at next_obs, if the env provides masks


class Sequences(NamedTuple):
    """B sequences of L rows, which can span several episodes (`is_first`)."""

    obs: Obs  # [L + 1, B, ...]
    actions: np.ndarray  # [L, B, ...]
    reward: np.ndarray  # float32[L, B]
    terminated: np.ndarray  # bool[L, B]
    truncated: np.ndarray  # bool[L, B]
    valid: np.ndarray  # bool[L, B]: rows to learn from, without reset rows and breaks
    is_first: np.ndarray  # bool[L + 1, B]: this observation starts an episode
    carry: dict[str, np.ndarray]  # of the acting policy, before the first row, [B, ...]
    mask: np.ndarray | None  # bool[L + 1, B, A]


class Replay:
    def __init__(
        self,
        capacity: int,
        n_envs: int,
        observation_space: Space,
        actions: ActionKind,
        *,
        has_masks: bool = False,
        frame_stacks: Mapping[str, int] | None = None,
        carry: Mapping[str, np.ndarray] | None = None,
        directory: str | None = None,
        has_goals: bool = False,
    ) -> None:
        """`capacity`: in transitions, over all envs. `frame_stacks` {part: k}: the part is a stack
        of k frames along its first axis, and only the newest frame is stored ("" names a plain
        array). `carry`: an example of the policy's carry, which is then stored with every row.
        `directory`: keep the arrays there in memory-mapped files, which are removed with the
        process. `has_goals`: keep track of episodes, for hindsight replay."""
        stacks = {name: n for name, n in (frame_stacks or {}).items() if n > 1}
        layout = layout_of(
            capacity, n_envs, observation_space, actions,
            has_masks=has_masks, frame_stacks=frame_stacks, carry=carry,
        )  # fmt: skip
        self.n_envs, self.n_rows = n_envs, layout["valid"][0][0]
        self.n_valid = 0  # transitions that can be sampled
        self._n_added = self._first_row = 0
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

    @classmethod
    def estimate_bytes(
        cls,
        capacity: int,
        n_envs: int,
        observation_space: Space,
        actions: ActionKind,
        *,
        has_masks: bool = False,
        frame_stacks: Mapping[str, int] | None = None,
    ) -> int:
        """Size of the arrays in bytes; nothing is allocated."""
        layout = layout_of(
            capacity, n_envs, observation_space, actions,
            has_masks=has_masks, frame_stacks=frame_stacks,
        )  # fmt: skip
        return sum(array_bytes(*form) for form in layout.values())

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    # -- adding -----------------------------------------------------------------------------

    def add(self, rollout: Rollout) -> None:
        """Append a rollout of any length. If it is longer than the ring, its newest rows are
        kept."""
        n_envs = rollout.valid.shape[1]
        if n_envs != self.n_envs:
            raise ValueError(f"the rollout has {n_envs} envs, expected {self.n_envs}")
        is_break = self._n_added > 0 and (rollout.is_restart or self._lacks_reset_row(rollout))
        columns = {
            "actions": rollout.actions,
            "reward": rollout.reward,
            "terminated": rollout.terminated,
            "truncated": rollout.truncated,
            "valid": rollout.valid,
            "is_first": rollout.is_first,
        }
        for name, part in obs_arrays(rollout.obs):
            columns[column_name("obs", name)] = part
        if self._frames:
            self._add_single_frames(columns, rollout, is_break)
        for name in self._carry_names:
            columns[column_name("carry", name)] = rollout.carry[name][: len(rollout.valid)]
        if "mask" in self._columns:
            if rollout.mask is None:
                raise ValueError(
                    "the rollout has no action mask, but the replay buffer was created with masks"
                )
            columns["mask"] = rollout.mask
        if is_break:
            self._step_over_head()
        self._write(self._n_added, columns)

    def _lacks_reset_row(self, rollout: Rollout) -> bool:
        """Whether an episode ended in the newest row without a following reset row. Without a
        break, its return or its frame stack would continue into the next episode.

        A lost life does not count: it terminates the return, but the same episode's observations
        follow.
        """
        newest, is_step = (self._n_added - 1) % self.n_rows, rollout.valid[0]
        if (self._columns["truncated"][newest] & is_step).any():
            return True
        ended = np.flatnonzero(self._columns["terminated"][newest] & is_step)
        if len(ended) == 0:
            return False
        final = self._observations(self.leaves(self._n_added, self._n_added + 1)[ended])
        given = take_rows(take_rows(rollout.obs, 0), ended)
        parts = zip(obs_arrays(final), obs_arrays(given), strict=True)
        return not all(np.array_equal(a, b) for (_, a), (_, b) in parts)

    def _step_over_head(self) -> None:
        """Keep the head as an invalid row, so that nothing continues from it into the next rows."""
        slot = self._n_added % self.n_rows
        for name in ("actions", "reward", "terminated", "truncated"):
            self._columns[name][slot] = 0  # remains of the overwritten row
        self._n_added += 1

    def _write(self, start: int, columns: dict[str, np.ndarray]) -> None:
        """Write rows starting at the absolute row `start`; the row after them becomes the head."""
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
        if self.episodes is not None:
            self.episodes.add(start + n_skipped, columns["valid"][n_skipped:])
        self._n_added = start + n
        self._valid[self._n_added % n_rows] = False
        self.n_valid += self._count_valid(slot, n_kept)
        if self._n_look_back and self.oldest_row > 0:
            # The oldest rows can no longer be sampled, since the frames before them are
            # overwritten.
            rows = np.arange(self.oldest_row, self.oldest_row + self._n_look_back) % n_rows
            self.n_valid -= int(np.count_nonzero(self._valid[rows]))
            self._valid[rows] = False

    def _count_valid(self, slot: int, n: int) -> int:
        count = int(np.count_nonzero(self._valid[slot : slot + n]))
        if slot + n > self.n_rows:
            count += int(np.count_nonzero(self._valid[: slot + n - self.n_rows]))
        return count

    def _add_single_frames(
        self, columns: dict[str, np.ndarray], rollout: Rollout, is_break: bool
    ) -> None:
        """Replace stacked parts with their newest frames and the data to rebuild the stacks."""
        if self._n_added == 0:  # maybe mid-episode (a resume): keep all frames of the first stacks
            self._write(0, self._look_back_rows(rollout))
        for name, frames in self._frames.items():
            obs = columns[column_name("obs", name)]
            stacks = frames.split(obs)
            older = np.empty(stacks.shape[:2], np.uint8)
            older[0] = self._columns[column_name("older", name)][self._n_added % self.n_rows]
            if is_break:
                head = self.leaves(self._n_added, self._n_added + 1)
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

    # -- sampling ---------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample n indices uniformly, with replacement, from the stored transitions."""
        self.check_not_empty()
        n_leaves = min(self._n_added, self.n_rows) * self.n_envs
        found: list[np.ndarray] = []
        while n > 0:
            n_drawn = n
            if self.n_valid < n_leaves:
                n_drawn = min(int(1.05 * n * n_leaves / self.n_valid) + 8, 2**20)
            # rng.integers takes twice the time per batch. The product stays below n_leaves.
            index = (rng.random(n_drawn) * n_leaves).astype(np.int64)
            if self.n_valid < n_leaves:
                index = index[self.is_valid(index)][:n]
            found.append(index)
            n -= len(index)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def check_not_empty(self) -> None:
        if self.n_valid == 0:
            raise ConfigError(
                "the replay buffer has no transitions to sample. Collect env steps before the "
                "first update (learning_starts)."
            )

    def newest(self) -> np.ndarray:
        """Indices of the newest row with transitions, one for each env that took a step."""
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
        new_goals: NewGoals | None = None,
    ) -> Transitions:
        """The transitions at valid indices, each over at most n_step steps of one episode.

        Rewards are scaled, then clipped to +-reward_clip, before they are summed. `new_goals`: of
        hindsight replay; rewards and terminations are computed for them first.
        """
        flat, n_envs = self._flat, self.n_envs
        chain = index if n_step == 1 else index + np.arange(0, n_step * n_envs, n_envs)[:, None]
        reward = flat["reward"].take(chain, mode="wrap")  # [n, B], or [B] for one step
        terminated = flat["terminated"].take(chain, mode="wrap")
        if new_goals is not None:
            new_goals.set_outcomes(self, chain, reward, terminated)
        reward = _shaped(reward, reward_scale, reward_clip)
        if n_step == 1:
            last = index
            discount = np.logical_not(terminated) * np.float32(gamma)
        else:
            goes_on = flat["valid"].take(chain, mode="wrap")
            # Reset rows are invalid. A lost life has no reset row, but `terminated` is set.
            goes_on[1:] &= ~terminated[:-1]
            np.logical_and.accumulate(goes_on, axis=0, out=goes_on)
            n_steps = goes_on.sum(axis=0)
            last = index + (n_steps - 1) * n_envs
            powers = (gamma ** np.arange(n_step + 1)).astype(np.float32)
            reward *= powers[:-1, None]
            reward = np.where(goes_on, reward, np.float32(0)).sum(axis=0)
            discount = powers.take(n_steps)
            discount[(terminated & goes_on).any(axis=0)] = 0
        following = last + n_envs  # may exceed the end: every gather wraps around
        actions = flat["actions"].take(index, axis=0)
        obs, next_obs = self._observations(index), self._observations(following)
        if new_goals is not None:
            new_goals.set_goals(obs)
            new_goals.set_goals(next_obs)
        return Transitions(
            obs,
            actions.astype(self._action_dtype, copy=False),
            reward,
            discount,
            next_obs,
            flat["mask"].take(following, axis=0, mode="wrap") if "mask" in flat else None,
        )

    def masks(self, index: np.ndarray) -> np.ndarray | None:
        """Legal actions bool[B, A] at the observations, if the env provides masks."""
        return self._flat["mask"].take(index, axis=0) if "mask" in self._flat else None

    def rewards(self, index: np.ndarray) -> np.ndarray:
        """The stored rewards float32[B]."""
        return self._flat["reward"].take(index)

    def is_valid(self, index: np.ndarray) -> np.ndarray:
        return self._flat["valid"].take(index)

    def row_of(self, index: np.ndarray) -> np.ndarray:
        """The absolute rows of indices."""
        return self._n_added - (self._n_added - index // self.n_envs) % self.n_rows

    def leaves(self, start: int, stop: int) -> np.ndarray:
        """The indices of absolute rows, grouped by row."""
        return np.arange(start * self.n_envs, stop * self.n_envs) % self._n_leaves

    def changed_since(self, n_added: int) -> np.ndarray:
        """Indices whose rows were written, or became unavailable, since `n_added` had this
        value."""
        changed = self.leaves(max(n_added, self._n_added + 1 - self.n_rows), self._n_added + 1)
        if not self._n_look_back:
            return changed
        past = self.leaves(self.oldest_row, self.oldest_row + self._n_look_back)
        return np.concatenate([past, changed])

    def _observations(self, index: np.ndarray) -> Obs:
        if self._is_dict:
            return {name: self.part(name, index) for name in self._parts}
        return self.part("", index)

    def part(self, name: str, index: np.ndarray) -> np.ndarray:
        """One part of the observations at indices, which may exceed the end."""
        column = self._flat[column_name("obs", name)]
        if name not in self._frames:
            return column.take(index, axis=0, mode="wrap")
        older = self._flat[column_name("older", name)]
        return self._frames[name].rebuild(column, older, index, self.n_envs)

    # -- sequences --------------------------------------------------------------------------

    def sample_sequences(self, n: int, length: int, rng: np.random.Generator) -> np.ndarray:
        """Sample n start indices, uniformly with replacement, of sequences of `length` rows.

        A sequence never wraps from the newest row into the oldest ones. Its first row is a step.
        """
        self.check_not_empty()
        first, n_starts = self.oldest_row, self._n_added - length - self.oldest_row + 1
        starts = np.arange(first, first + n_starts) if n_starts > 0 else np.empty(0, np.int64)
        index = (starts[:, None] % self.n_rows * self.n_envs + np.arange(self.n_envs)).reshape(-1)
        index = index[self.is_valid(index)] if len(index) else index
        if len(index) == 0:
            raise ConfigError(
                f"the replay buffer has no sequence of {length} rows yet: collect more env steps "
                "before the first update (learning_starts), or use shorter sequences."
            )
        return index[rng.integers(len(index), size=n)]

    def sequences(self, index: np.ndarray, length: int) -> Sequences:
        """The rows from `index` on, with the acting policy's carry before the first row."""
        flat, n_envs = self._flat, self.n_envs
        rows = (index + np.arange(length + 1)[:, None] * n_envs) % self._n_leaves  # [L + 1, B]
        grid = rows.reshape(-1)

        def shaped(array: np.ndarray) -> np.ndarray:
            return array.reshape(*rows.shape, *array.shape[1:])

        flat_obs = self._observations(grid)
        obs: Obs = (
            {name: shaped(part) for name, part in flat_obs.items()}
            if isinstance(flat_obs, dict)
            else shaped(flat_obs)
        )
        steps = rows[:-1]
        return Sequences(
            obs=obs,
            actions=flat["actions"].take(steps, axis=0).astype(self._action_dtype, copy=False),
            reward=flat["reward"].take(steps),
            terminated=flat["terminated"].take(steps),
            truncated=flat["truncated"].take(steps),
            valid=flat["valid"].take(steps),
            is_first=flat["is_first"].take(rows),
            carry={
                name: flat[column_name("carry", name)].take(index, axis=0)
                for name in self._carry_names
            },
            mask=flat["mask"].take(rows, axis=0) if "mask" in flat else None,
        )

    # -- saving, by absolute rows -----------------------------------------------------------

    @property
    def n_added(self) -> int:
        """Number of rows ever written; the head is row n_added."""
        return self._n_added

    @property
    def oldest_row(self) -> int:
        """The first absolute row still stored."""
        return max(self._first_row, self._n_added - self.n_rows + 1)

    @property
    def oldest_whole_row(self) -> int:
        """The first absolute row whose frame stacks can be rebuilt."""
        return self.oldest_row + (self._n_look_back if self.oldest_row > 0 else 0)

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies of stored rows; columns that belong to observations also include row `stop`.

        Saving rows in pieces as they come, and passing them to `put_rows` in that order, restores
        this exact state: later rows do not change earlier ones.
        """
        if not self.oldest_row <= start <= stop <= self._n_added:
            raise ValueError(
                f"rows {start} to {stop} are not stored; available: {self.oldest_row} to "
                f"{self._n_added}"
            )
        slots = np.arange(start, stop + 1) % self.n_rows
        return {
            name: column[slots if name.partition(".")[0] in _PER_OBSERVATION else slots[:-1]]
            for name, column in self._columns.items()
        }

    def put_rows(self, start: int, arrays: dict[str, np.ndarray]) -> None:
        """Append rows returned by `rows(start, ...)`. Rows before a gap are dropped."""
        given, expected = forms_of(arrays), forms_of(self._columns)
        if given != expected or start < self._n_added:
            raise RunError(
                f"the saved replay rows start at row {start} with shapes {given}; expected row "
                f"{self._n_added} and shapes {expected}. Resume with the env, n_envs and "
                "replay_frame_stack of the original run, or without its saved replay buffer."
            )
        if not are_actions(arrays["actions"], self._action_space):
            raise RunError(
                f"the saved replay rows from {start} on have actions that are not in "
                f"{self._action_space}: they are damaged. Use another checkpoint of this run."
            )
        if start > self._n_added:
            self._valid[:] = False
            self.n_valid, self._first_row = 0, start
        self._write(start, arrays)


def _shaped(reward: np.ndarray, scale: float, clip: float | None) -> np.ndarray:
    """Scale, then clip, in place."""
    if scale != 1.0:
        reward *= scale
    if clip is not None:
        np.clip(reward, -clip, clip, out=reward)
    return reward
