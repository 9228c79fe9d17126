"""Actions in the vector contract: one array for every action space, NumPy only.

    action_shape(space)                   # of one action: space.shape, or (k,) for a Dict or Tuple
    to_native(space, row)                 # what `step` of one environment takes
    to_native_batch(space, rows)          # what `step` of a vectorised environment takes
    from_native(space, action), from_native_batch(space, actions)         # the inverses

The action of a Dict or Tuple space is one float64 row of its concatenated leaves, in the order of
the space (alphabetical for a Dict). This module must not import torch, because environments import
it. spaces/actions.py has the distributions.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import (
    Space,
    is_array,
    is_box,
    is_dict,
    is_tuple,
)

LARGEST_BOUND = 1e30
"""A larger bound is the limit of a float type and counts as unbounded."""


def is_product(space: Space) -> bool:
    """Whether an action has several leaves."""
    return is_dict(space) or is_tuple(space)


def bounded(space: spaces.Box) -> np.ndarray:
    """bool[*shape]: which components have two finite bounds."""
    mask: np.ndarray = (np.abs(space.low) < LARGEST_BOUND) & (np.abs(space.high) < LARGEST_BOUND)
    return mask


def action_leaves(space: Space) -> list[Space]:
    """The leaves of an action space in order; a plain space is its own leaf."""
    if is_product(space):
        return [leaf for part in parts_of(space).values() for leaf in action_leaves(part)]
    if not is_array(space):
        raise EnvError(
            f"actions of type {type(space).__name__} are not supported. Supported: Discrete, "
            "Box, MultiDiscrete, MultiBinary, and Dict and Tuple of these."
        )
    return [space]


def parts_of(space: Any) -> dict[Any, Space]:
    """The parts of a Dict by their keys, or of a Tuple by their places."""
    return dict(space.spaces) if is_dict(space) else dict(enumerate(space.spaces))


def action_width(space: Space) -> int:
    """Number of components of one action."""
    return sum(math.prod(leaf.shape or ()) for leaf in action_leaves(space))


def action_shape(space: Space) -> tuple[int, ...]:
    """Shape of one action as an array."""
    return (action_width(space),) if is_product(space) else tuple(space.shape or ())


def to_native(space: Space, row: np.ndarray) -> Any:
    """Convert one action for a single environment: a dict or a tuple for product spaces."""
    return _build(space, row, lambda leaf, part: _typed(leaf, part.reshape(leaf.shape or ())))


def to_native_batch(space: Space, rows: np.ndarray) -> Any:
    """Convert actions [N, ...] for a vectorised environment: a dict or tuple of batches."""
    n = len(rows)
    return _build(
        space, rows, lambda leaf, part: _typed(leaf, part.reshape(n, *(leaf.shape or ())))
    )


def from_native(space: Space, action: Any) -> np.ndarray:
    """One action of a single environment as an array."""
    if not is_product(space):
        return np.asarray(action)
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in _parts(space, action)])


def from_native_batch(space: Space, actions: Any) -> np.ndarray:
    """Actions of a vectorised environment as an array [N, ...]."""
    if not is_product(space):
        return np.asarray(actions)
    parts = [np.asarray(part, float) for part in _parts(space, actions)]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _parts(space: Space, action: Any) -> Iterator[Any]:
    """The leaves of an action in the order of the space."""
    if not is_product(space):
        yield action
        return
    try:
        for name, part in parts_of(space).items():
            yield from _parts(part, action[name])
    except (KeyError, IndexError, TypeError):
        raise EnvError(f"the action {action!r} does not fit {space}.") from None


def _build(space: Space, array: np.ndarray, leaf: Callable[[Space, np.ndarray], Any]) -> Any:
    if not is_product(space):
        return array
    values, first = {}, 0
    for name, part in parts_of(space).items():
        width = action_width(part)
        columns = array[..., first : first + width]
        first += width
        values[name] = _build(part, columns, leaf) if is_product(part) else leaf(part, columns)
    return values if is_dict(space) else tuple(values.values())


def _typed(leaf: Space, values: np.ndarray) -> Any:
    """Cast to the leaf's dtype and clip to its bounds, which rounding to float32 may exceed."""
    if is_box(leaf):
        values = np.clip(values, leaf.low, leaf.high)
    typed = values.astype(leaf.dtype)
    return typed[()] if typed.ndim == 0 else typed
