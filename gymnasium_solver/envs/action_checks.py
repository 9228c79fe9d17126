"""Checks on actions before they reach an engine.

EnvPool accepts any value silently (7 in CartPole), and a NaN in a physics engine shows up thousands
of steps later. So every action is checked, by a function that `action_checker` builds once for a
space: a few NumPy calls for valid actions. The invalid one is searched for only when there is one.

Actions are one array [N, *shape] for every space. Those of a Dict or Tuple space are float64
[N, k], their leaves side by side (spaces/native_actions.py).
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import action_leaves, action_width, is_product

Checker = Callable[[Any], np.ndarray]
spaces = gymnasium.spaces


def action_checker(space: gymnasium.spaces.Space[Any], n_envs: int, env_id: str) -> Checker:
    """A function from what the caller gave to the array that the engine gets, or EnvError."""
    if isinstance(space, spaces.Discrete):
        return _one_range(space, (n_envs,), int(space.start), int(space.n), env_id)
    if isinstance(space, spaces.MultiBinary):
        return _one_range(space, (n_envs, *space.shape), 0, 2, env_id)
    if isinstance(space, spaces.MultiDiscrete):
        return _many_ranges(space, n_envs, env_id)
    if isinstance(space, spaces.Box):
        return _box(space, n_envs, env_id)
    if is_product(space):
        return _product(space, n_envs, env_id)
    action_leaves(space)  # raises EnvError with the supported kinds
    raise AssertionError(space)


def _one_range(space: Any, shape: tuple[int, ...], start: int, n: int, env_id: str) -> Checker:
    """Whole numbers in [start, start + n), all in the same range."""
    count = np.uint64(n)

    def check(actions: Any) -> np.ndarray:
        array = _whole_numbers(actions, shape, space, env_id)
        # Read as unsigned a negative number is huge: one comparison checks both ends.
        good = (array - start if start else array).view(np.uint64) < count
        if np.count_nonzero(good) != array.size:
            raise _first_bad(env_id, array, ~good, space)
        return array

    return check


def _many_ranges(space: gymnasium.spaces.MultiDiscrete, n_envs: int, env_id: str) -> Checker:
    """Whole numbers, each column in a range of its own."""
    shape, low, high = (n_envs, *space.shape), space.start, space.start + space.nvec

    def check(actions: Any) -> np.ndarray:
        array = _whole_numbers(actions, shape, space, env_id)
        bad = (array < low) | (array >= high)
        if np.count_nonzero(bad):
            raise _first_bad(env_id, array, bad, space)
        return array

    return check


def _box(space: gymnasium.spaces.Box, n_envs: int, env_id: str) -> Checker:
    """Finite numbers, clipped to the bounds and cast to the space's dtype."""
    shape, dtype, low, high = (n_envs, *space.shape), space.dtype, space.low, space.high

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
    width = action_width(leaf)
    if isinstance(leaf, spaces.Box):
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (leaf.low, leaf.high))
        return low, high, np.full(width, leaf.dtype.kind == "f")
    if isinstance(leaf, spaces.MultiBinary):
        low, n = np.zeros(width), np.full(width, 2.0)
    else:
        sizes = leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec
        low, n = (np.asarray(x, np.float64).reshape(-1) for x in (leaf.start, sizes))
    return low, low + n - 1, np.zeros(width, np.bool_)


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
