"""Which class a space has, and the whole numbers that it holds. Other rooms ask here.

This module must not import torch, because environments import it.
"""

from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

Space = spaces.Space[Any]
# Spaces whose values are arrays.
ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def is_array(space: Any) -> bool:
    """Whether its values are one array each."""
    return isinstance(space, ARRAYS)


def is_box(space: Any) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box)


def is_discrete(space: Any) -> TypeGuard[spaces.Discrete]:
    return isinstance(space, spaces.Discrete)


def is_multi_discrete(space: Any) -> TypeGuard[spaces.MultiDiscrete]:
    return isinstance(space, spaces.MultiDiscrete)


def is_multi_binary(space: Any) -> TypeGuard[spaces.MultiBinary]:
    return isinstance(space, spaces.MultiBinary)


def is_dict(space: Any) -> TypeGuard[spaces.Dict]:
    return isinstance(space, spaces.Dict)


def is_tuple(space: Any) -> TypeGuard[spaces.Tuple]:
    return isinstance(space, spaces.Tuple)


def choices(space: Any) -> list[int] | None:
    """How many values each choice of a Discrete or MultiDiscrete space has; None for others."""
    if is_discrete(space):
        return [int(space.n)]
    return [int(n) for n in space.nvec.reshape(-1)] if is_multi_discrete(space) else None


def whole_range(space: Any) -> tuple[Any, Any]:
    """Lowest and highest value of a space of whole numbers: for a Box what its dtype can hold."""
    if is_discrete(space):
        return int(space.start), int(space.start + space.n) - 1
    if is_multi_discrete(space):
        return space.start, space.start + space.nvec - 1
    if is_multi_binary(space) or space.dtype == np.bool_:
        return 0, 1
    limits = np.iinfo(space.dtype)
    return int(limits.min), int(limits.max)


def number_type(space: Space) -> Any:
    """What two spaces of the same numbers share, whatever the bounds of real ones: two engines may
    differ in the bounds of the same task."""
    return (space.shape, str(space.dtype)) if is_box(space) else str(space)


def as_float32(space: Space) -> Space:
    """A float64 Box as float32, the type of every policy; any other space as it is."""
    if is_box(space) and space.dtype == np.float64:
        with np.errstate(over="ignore"):  # the limits of float64 are none in float32
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)
    return space
