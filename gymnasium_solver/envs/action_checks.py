"""Checks on actions before they reach an engine, and the masks of legal ones.

EnvPool accepts any value silently (7 in CartPole), and a NaN in a physics engine shows up thousands
of steps later. So every action is checked, by a function that `action_checker` builds once for a
space: a few NumPy calls for valid actions. The invalid one is searched for only when there is one.
Actions are one array [N, *shape] for every space. Those of a Dict or Tuple space are float64
[N, k], their leaves side by side (spaces/space_types.py).

Environments give masks as `info["action_mask"]`, 1 where an action is legal. `MaskReader` makes
bool[N, columns] of what an engine's infos hold. Discrete actions have a column for each action:
column j stands for action `start + j`. MultiDiscrete actions have the columns of their components
side by side, and an env may give them as a tuple with one mask for each component, as
`MultiDiscrete.sample` takes them. Gymnasium's vector envs set a flag `_action_mask` for the rows
that gave a mask; the other rows are all legal. The first reset decides whether an env has masks, so
that storage and networks can be built after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import (
    Space,
    action_leaves,
    action_shape,
    choices,
    is_box,
    is_product,
    whole_range,
)

Checker = Callable[[Any], np.ndarray]


def action_checker(space: Space, n_envs: int, env_id: str) -> Checker:
    """A function from what the caller gave to the array that the engine gets, or EnvError."""
    action_leaves(space)  # EnvError for other spaces, with the supported ones
    shape = (n_envs, *action_shape(space))
    kind = _product if is_product(space) else _box if is_box(space) else _whole
    return kind(space, shape, env_id)


def _whole(space: Any, shape: tuple[int, ...], env_id: str) -> Checker:
    """Whole numbers, each in its range."""
    low, high = whole_range(space)
    span, has_start = np.asarray(high - low).astype(np.uint64), bool(np.any(low))

    def check(actions: Any) -> np.ndarray:
        given = _numbers(actions, shape, "iu", "whole numbers", space, env_id)
        array = given.astype(np.int64, order="C", copy=False)
        # Read as unsigned a negative number is huge: one comparison checks both ends.
        good = (array - low if has_start else array).view(np.uint64) <= span
        if np.count_nonzero(good) != array.size:
            raise _first_bad(env_id, array, ~good, space)
        return array

    return check


def _box(space: Any, shape: tuple[int, ...], env_id: str) -> Checker:
    """Finite numbers, clipped to the bounds and cast to the space's dtype."""
    dtype, low, high = space.dtype, space.low, space.high

    def check(actions: Any) -> np.ndarray:
        given = _finite_numbers(actions, shape, space, env_id)
        return np.minimum(np.maximum(given, low), high).astype(dtype, order="C", copy=False)

    return check


def _product(space: Any, shape: tuple[int, ...], env_id: str) -> Checker:
    """One float64 row for all leaves: reals clipped to their bounds, whole numbers in range."""
    ends = [_ends(leaf) for leaf in action_leaves(space)]
    low, high, is_real = (np.concatenate(column) for column in zip(*ends, strict=True))

    def check(actions: Any) -> np.ndarray:
        given = _finite_numbers(actions, shape, space, env_id).astype(np.float64)
        bad = ~is_real & ((given != np.rint(given)) | (given < low) | (given > high))
        if np.count_nonzero(bad):
            raise _first_bad(env_id, given, bad, space)
        return np.minimum(np.maximum(given, low), high)

    return check


def _ends(leaf: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest and highest value of each number of a leaf, and whether it is real."""
    ends = (leaf.low, leaf.high) if is_box(leaf) else whole_range(leaf)
    low, high = (np.broadcast_to(np.float64(end), leaf.shape).reshape(-1) for end in ends)
    return low, high, np.full(low.shape, is_box(leaf) and leaf.dtype.kind == "f")


def _finite_numbers(actions: Any, shape: tuple[int, ...], space: Any, env_id: str) -> np.ndarray:
    given = _numbers(actions, shape, "fiu", "numbers as actions", space, env_id)
    finite = np.isfinite(given)
    if np.count_nonzero(finite) != given.size:
        raise _first_bad(env_id, given, ~finite, space)
    return given


def _numbers(
    actions: Any, shape: tuple[int, ...], kinds: str, words: str, space: Any, env_id: str
) -> np.ndarray:
    """The actions as an array of this shape, of one of NumPy's kinds of dtypes."""
    given = actions if isinstance(actions, np.ndarray) else np.asarray(actions)
    if given.dtype.kind not in kinds:
        raise EnvError(f"{env_id}: {space} takes {words}, got dtype {given.dtype}.")
    if given.shape != shape:
        raise EnvError(
            f"{env_id}: actions have shape {given.shape}, expected {shape} (one row for each env)."
        )
    return given


def _first_bad(env_id: str, actions: np.ndarray, bad: np.ndarray, space: Any) -> EnvError:
    row = int(np.argwhere(bad)[0][0])
    return EnvError(f"{env_id}: action {actions[row].tolist()} of env {row} is not in {space}.")


# -- masks ----------------------------------------------------------------------------------------


MASK_KEY = "action_mask"


class MaskReader:
    """Reads the masks of one vector env, and refuses those that no policy could obey."""

    def __init__(self, action_space: Any, n_envs: int, env_id: str) -> None:
        sizes = choices(action_space)
        self._shape = None if sizes is None else (n_envs, sum(sizes))
        self._firsts = np.cumsum([0, *(sizes or [])[:-1]])
        self._env_id = env_id
        self._has_masks: bool | None = None

    def at_reset(self, info: Mapping[str, Any], *episodes: np.ndarray) -> np.ndarray | None:
        """As `at_step`, for the first observations, which tell whether the env has masks."""
        if self._has_masks is None:
            self._has_masks = self._shape is not None and MASK_KEY in info
        return self.at_step(info, *episodes)

    def at_step(
        self, info: Mapping[str, Any], done: np.ndarray, episode_length: np.ndarray
    ) -> np.ndarray | None:
        """The masks of the observations after a step, a fresh array."""
        if not self._has_masks:
            if self._shape is not None and MASK_KEY in info:
                raise EnvError(
                    f"{self._env_id}: info[{MASK_KEY!r}] came later than the first reset. Put it "
                    "into the info of reset() too, so that the first action can obey it."
                )
            return None
        mask = self._read(info)
        # Of each choice something must be legal.
        empty = ~np.logical_or.reduceat(mask, self._firsts, axis=1).all(axis=1)
        return legal_at_ends(
            mask, empty, done, True, lambda row: self.nothing_legal(row, episode_length[row])
        )

    def nothing_legal(self, row: int, episode_length: int) -> str:
        return (
            f"{self._env_id}: info[{MASK_KEY!r}] of env {row} forbids every action after step "
            f"{episode_length} of its episode. Leave one legal, or end the episode."
        )

    def _read(self, info: Mapping[str, Any]) -> np.ndarray:
        assert self._shape is not None
        given = info.get(MASK_KEY)
        if given is None:
            return np.ones(self._shape, np.bool_)
        if isinstance(given, tuple) and len(given) == len(self._firsts) > 1:
            given = np.concatenate([np.asarray(part) for part in given], axis=1)
        rows = np.asarray(given)
        if rows.dtype == np.object_:  # lists or tuples, and None where a row gave nothing
            rows = self._stack(rows)
        if rows.shape != self._shape:
            raise self._misshapen(f"has shape {rows.shape}")
        mask = rows.astype(np.bool_)
        if not np.array_equal(mask, rows):
            raise EnvError(
                f"{self._env_id}: info[{MASK_KEY!r}] holds values other than 0 and 1, such as "
                f"{rows[mask != rows][0]}. Give 1 for a legal action and 0 for a forbidden one."
            )
        flags = info.get(f"_{MASK_KEY}")
        if flags is not None:
            mask[~np.asarray(flags, np.bool_)] = True
        return mask

    def _stack(self, rows: np.ndarray) -> np.ndarray:
        assert self._shape is not None
        all_legal = [1] * self._shape[1]
        try:
            return np.array([all_legal if row is None else _joined(row) for row in rows])
        except ValueError as error:
            raise self._misshapen("has rows of different lengths") from error

    def _misshapen(self, what: str) -> EnvError:
        return EnvError(
            f"{self._env_id}: info[{MASK_KEY!r}] {what}, expected {self._shape}: a 0 or 1 for each "
            "action, in each env."
        )


def legal_at_ends(
    mask: np.ndarray, empty: Any, done: np.ndarray, legal: Any, problem: Callable[[int], str]
) -> np.ndarray:
    """The mask, with `legal` in its empty rows; EnvError(problem(row)) where an episode goes on.

    Nobody acts at a final observation, so an env may forbid everything there. Some actions are
    marked legal at such rows, so that a maximum over the legal actions is defined."""
    if empty.any():
        for row in np.flatnonzero(empty & ~done):
            raise EnvError(problem(int(row)))
        mask[empty] = legal
    return mask


def _joined(row: Any) -> Any:
    """A tuple of masks, one for each component, as one row."""
    if isinstance(row, tuple | np.ndarray | list) and len(row) and np.ndim(row[0]) == 1:
        return np.concatenate([np.asarray(part) for part in row])
    return row
