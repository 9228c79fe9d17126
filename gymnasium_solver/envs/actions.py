"""Checks on actions before they reach an engine. EnvPool takes any value silently (CartPole accepts 7),
and a NaN in a physics engine surfaces thousands of steps later, so every action is checked here.

`action_checker(space, n_envs, env_id)` returns a function that is called at every step: it costs two or
three NumPy calls when the actions are good, and looks for the culprit only when they are not.
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError

Checker = Callable[[Any], np.ndarray]


def action_checker(space: gymnasium.spaces.Space[Any], n_envs: int, env_id: str) -> Checker:
    """A function from what the caller gave to the array the engine gets, or EnvError."""
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Discrete):
        return _integers(space, (n_envs,), int(space.start), int(space.n), env_id)
    if isinstance(space, spaces.MultiBinary):
        return _integers(space, (n_envs, *space.shape), 0, 2, env_id)
    if isinstance(space, spaces.MultiDiscrete):
        return _integers(space, (n_envs, *space.shape), space.start, space.nvec, env_id)
    if isinstance(space, spaces.Box):
        return _box(space, n_envs, env_id)
    raise EnvError(
        f"{env_id}: actions of type {type(space).__name__} are not supported, "
        "only Discrete, MultiDiscrete, MultiBinary and Box."
    )


def _integers(space: Any, shape: tuple[int, ...], start: Any, n: Any, env_id: str) -> Checker:
    """Whole numbers in [start, start + n). One reduction: as unsigned, a negative is huge."""
    shifted = np.any(start != 0)
    uniform = np.ndim(n) == 0
    largest = n - 1 if uniform else 0

    def check(actions: Any) -> np.ndarray:
        given = actions if isinstance(actions, np.ndarray) else np.asarray(actions)
        if given.dtype.kind not in "iu":
            raise EnvError(
                f"{env_id}: {space} takes whole-number actions, got dtype {given.dtype}."
            )
        if given.shape != shape:
            raise _wrong_shape(env_id, given.shape, shape)
        array = given.astype(np.int64, order="C", copy=False)
        unsigned = (array - start if shifted else array).view(np.uint64)
        if uniform:
            bad = np.maximum.reduce(unsigned, axis=None) > largest
        else:
            bad = bool(np.any(unsigned >= n))
        if bad:
            raise _first_bad(env_id, array, unsigned >= np.asarray(n, np.uint64), space)
        return array

    return check


def _box(space: gymnasium.spaces.Box, n_envs: int, env_id: str) -> Checker:
    """Finite numbers, clipped to the bounds and cast to the space's dtype."""
    shape, dtype, low, high = (n_envs, *space.shape), space.dtype, space.low, space.high

    def check(actions: Any) -> np.ndarray:
        given = actions if isinstance(actions, np.ndarray) else np.asarray(actions)
        if given.dtype.kind not in "fiu":
            raise EnvError(f"{env_id}: {space} takes numbers as actions, got dtype {given.dtype}.")
        if given.shape != shape:
            raise _wrong_shape(env_id, given.shape, shape)
        # The sum is finite only if every entry is; it may overflow though all are, so look again then.
        if not math.isfinite(np.add.reduce(given, axis=None)):
            bad = ~np.isfinite(given)
            if bad.any():
                raise _first_bad(env_id, given, bad, space)
        return np.minimum(np.maximum(given, low), high).astype(dtype, order="C", copy=False)

    return check


def _wrong_shape(env_id: str, got: tuple[int, ...], expected: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"{env_id}: actions have shape {got}, expected {expected} (one row for each env)."
    )


def _first_bad(env_id: str, actions: np.ndarray, bad: np.ndarray, space: Any) -> EnvError:
    row = int(np.argwhere(bad)[0][0])
    return EnvError(f"{env_id}: action {actions[row].tolist()} of env {row} is not in {space}.")
