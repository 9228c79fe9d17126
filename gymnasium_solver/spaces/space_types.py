"""Spaces: which class one has, the whole numbers it holds, its actions as arrays, and its JSON.

    action_shape(space)                   # of one action: space.shape, or (k,) for a Dict or Tuple
    to_native(space, array)               # what `step` of one, or of a vectorised env takes
    from_native(space, action), from_native_batch(space, actions)         # the inverses
    space_from_json(space_to_json(space))

Other rooms ask here for the class of a space. The action of a Dict or Tuple space is one float64
row of its concatenated leaves, in the order of the space (alphabetical for a Dict). This module
must not import torch, because environments import it; spaces/actions.py has the distributions.
"""

import math
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError

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


def shown(space: Any) -> str:
    """A space in one line: the text of one with arrays has several."""
    return " ".join(str(space).split())


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


# -- actions as arrays ----------------------------------------------------------------------------


LARGEST_BOUND = 1e30  # a larger bound is the limit of a float type and counts as unbounded


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


def to_native(space: Space, array: np.ndarray) -> Any:
    """One action, or actions [N, ...], as an env takes them: a dict or a tuple where it is one."""
    if not is_product(space):
        return array
    parts = parts_of(space)
    columns = np.split(array, np.cumsum([*map(action_width, parts.values())])[:-1], axis=-1)
    values = {
        name: to_native(part, own) if is_product(part) else _typed(part, own)
        for (name, part), own in zip(parts.items(), columns, strict=True)
    }
    return values if is_dict(space) else tuple(values.values())


def from_native(space: Space, action: Any) -> np.ndarray:
    """One action of a single environment as an array."""
    if not is_product(space):
        return np.asarray(action)
    return np.concatenate([np.ravel(np.float64(part)) for part in _leaf_values(space, action)])


def from_native_batch(space: Space, actions: Any) -> np.ndarray:
    """Actions of a vectorised environment as an array [N, ...]."""
    if not is_product(space):
        return np.asarray(actions)
    parts = [np.asarray(part, float) for part in _leaf_values(space, actions)]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _leaf_values(space: Space, action: Any) -> Iterator[Any]:
    """The leaves of an action in the order of the space."""
    if not is_product(space):
        yield action
        return
    try:
        for name, part in parts_of(space).items():
            yield from _leaf_values(part, action[name])
    except (KeyError, IndexError, TypeError):
        raise EnvError(f"the action {action!r} does not fit {space}.") from None


def _typed(leaf: Space, columns: np.ndarray) -> Any:
    """Cast to the leaf's dtype and clip to its bounds, which rounding to float32 may exceed."""
    values = columns.reshape((*columns.shape[:-1], *(leaf.shape or ())))
    if is_box(leaf):
        values = np.clip(values, leaf.low, leaf.high)
    typed = values.astype(leaf.dtype)
    return typed[()] if typed.ndim == 0 else typed


# -- JSON: a checkpoint can be loaded without its environment -------------------------------------


MOST_VALUES = 100_000_000  # in one observation; a damaged file may say anything


def space_to_json(space: Space) -> dict[str, Any]:
    if is_discrete(space):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if is_box(space):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if is_multi_discrete(space):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if is_multi_binary(space):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if is_dict(space):
        parts = [[name, space_to_json(part)] for name, part in space.spaces.items()]
        return {"kind": "Dict", "parts": parts}
    if is_tuple(space):
        return {"kind": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    raise EnvError(f"a space of type {type(space).__name__} cannot be saved: {space}.")


def space_from_json(data: dict[str, Any]) -> Space:
    kind = data["kind"]
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "Box":
        return _box_from_json(data)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "MultiBinary":
        shape = tuple(data["shape"])  # Gymnasium takes a number for one axis
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return spaces.Dict([(name, space_from_json(part)) for name, part in data["parts"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in data["parts"]])
    problem = f"the saved space has the unknown kind {kind!r}"
    raise EnvError(f"{problem}; was it written by a newer version?")


def _bound_to_json(bound: np.ndarray) -> list[float | None]:
    """JSON has no infinity, so it becomes null. A constant bound is written once."""
    flat = bound.reshape(-1)
    flat = flat[:1] if len(flat) and (flat == flat[0]).all() else flat
    return [float(x) if np.isfinite(x) else None for x in flat]


def _box_from_json(data: dict[str, Any]) -> spaces.Box:
    dtype, n = np.dtype(data["dtype"]), math.prod(data["shape"])
    if n > MOST_VALUES:
        raise EnvError(f"the saved space has shape {data['shape']}, {n:,} values: it is damaged.")

    def bound(values: list[float | None], missing: float) -> np.ndarray:
        filled = np.array([missing if x is None else x for x in values], dtype)
        return np.resize(filled, data["shape"])

    low, high = bound(data["low"], -np.inf), bound(data["high"], np.inf)
    return spaces.Box(low, high, tuple(data["shape"]), dtype.type)
