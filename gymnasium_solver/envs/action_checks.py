"""Checks on actions before they reach an engine.

EnvPool accepts any value silently (7 in CartPole), and a NaN in a physics engine shows up thousands
of steps later. So every action is checked, by a function that `action_checker` builds once for a
space: a few NumPy calls for valid actions. The invalid one is searched for only when there is one.

Actions are one array [N, *shape] for every space. Those of a Dict or Tuple space are float64
[N, k], their leaves side by side (spaces/native_actions.py).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import action_leaves, action_width, is_product
from gymnasium_solver.spaces.space_types import Space, is_box, whole_range

Checker = Callable[[Any], np.ndarray]


def action_checker(space: Space, n_envs: int, env_id: str) -> Checker:
    """A function from what the caller gave to the array that the engine gets, or EnvError."""
    if is_product(space):
        return _product(space, n_envs, env_id)
    action_leaves(space)  # EnvError for other spaces, with the supported ones
    return (_box if is_box(space) else _whole)(space, (n_envs, *(space.shape or ())), env_id)


def _whole(space: Any, shape: tuple[int, ...], env_id: str) -> Checker:
    """Whole numbers, each in its range."""
    low, high = whole_range(space)
    span, has_start = np.asarray(high - low).astype(np.uint64), bool(np.any(low))

    def check(actions: Any) -> np.ndarray:
        array = _whole_numbers(actions, shape, space, env_id)
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


def _product(space: Any, n_envs: int, env_id: str) -> Checker:
    """One float64 row for all leaves: reals clipped to their bounds, whole numbers in range."""
    shape = (n_envs, action_width(space))
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
    given = actions if isinstance(actions, np.ndarray) else np.asarray(actions)
    if given.dtype.kind not in "fiu":
        raise EnvError(f"{env_id}: {space} takes numbers as actions, got dtype {given.dtype}.")
    if given.shape != shape:
        raise _wrong_shape(env_id, given.shape, shape)
    finite = np.isfinite(given)
    if np.count_nonzero(finite) != given.size:
        raise _first_bad(env_id, given, ~finite, space)
    return given


def _whole_numbers(actions: Any, shape: tuple[int, ...], space: Any, env_id: str) -> np.ndarray:
    given = actions if isinstance(actions, np.ndarray) else np.asarray(actions)
    if given.dtype.kind not in "iu":
        raise EnvError(f"{env_id}: {space} takes whole numbers, got dtype {given.dtype}.")
    if given.shape != shape:
        raise _wrong_shape(env_id, given.shape, shape)
    return given.astype(np.int64, order="C", copy=False)


def _wrong_shape(env_id: str, got: tuple[int, ...], expected: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"{env_id}: actions have shape {got}, expected {expected} (one row for each env)."
    )


def _first_bad(env_id: str, actions: np.ndarray, bad: np.ndarray, space: Any) -> EnvError:
    row = int(np.argwhere(bad)[0][0])
    return EnvError(f"{env_id}: action {actions[row].tolist()} of env {row} is not in {space}.")
