"""Whether what an environment returns is what its spaces declare, in words.

    misfit(Box(0, 255, (3,), uint8), [0.5, 0, 0])     # "holds 0.5, expected whole numbers (uint8)"

Only what would be wrong once it is stored counts: another number of values, values that the dtype
cannot hold, numbers outside of a discrete space. Bounds of real numbers do not: many environments
exceed them a little, and networks read such values.
"""

from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.spaces.observations import Space

spaces = gymnasium.spaces


def misfit(space: Space, value: Any, n_envs: int | None = None) -> str | None:
    """Why a value, or a batch of `n_envs`, does not fit an array space; None if it fits."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        return f"is no array ({error})"
    if array.dtype.kind not in "fiub":
        return f"has dtype {array.dtype}, expected numbers"
    expected = _shape(space) if n_envs is None else (n_envs, *_shape(space))
    # A single observation may have axes of length 1 in front: (1, 3) for (3,).
    lead = max(0, array.ndim - len(expected)) if n_envs is None else 0
    if array.shape != (1,) * lead + expected:
        return f"has shape {array.shape}, expected {expected}"
    return _values_misfit(space, array.reshape(expected))


def fits_exactly(space: Space, value: Any) -> bool:
    """Whether a value that fits can be stored as it is."""
    return not isinstance(value, list) and np.shape(value) == _shape(space)


def shaped(space: Space, value: Any) -> np.ndarray:
    """A value that fits, with the shape of the space."""
    return np.asarray(value).reshape(_shape(space))


def reward_number(reward: Any) -> float | None:
    """A reward as a number; an array with one element counts as its number."""
    array = np.asarray(reward) if reward is not None else np.empty(0)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiub" else None


def whole_range(space: Any) -> tuple[Any, Any]:
    """Lowest and highest value of a space of whole numbers: for a Box what its dtype can hold."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary) or space.dtype == np.bool_:
        return 0, 1
    limits = np.iinfo(space.dtype)
    return int(limits.min), int(limits.max)


def _shape(space: Space) -> tuple[int, ...]:
    return tuple(space.shape or ())


def _values_misfit(space: Space, array: np.ndarray) -> str | None:
    if space.dtype is None or space.dtype.kind not in "iub":
        return None
    if array.dtype.kind == "f":
        fractions = array != np.rint(array)  # true for NaN too
        if fractions.any():
            return f"holds {array[fractions].flat[0]:g}, expected whole numbers ({space.dtype})"
    lowest, highest = whole_range(space)
    outside = (array < lowest) | (array > highest)
    if outside.any():
        ends = (np.broadcast_to(end, array.shape)[outside].flat[0] for end in (lowest, highest))
        return f"holds {array[outside].flat[0]:g}, expected {next(ends)} to {next(ends)}"
    return None
