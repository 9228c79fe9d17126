"""Observations between engine and network: one array, or a dict of named arrays.

    Obs = np.ndarray | dict[str, np.ndarray]       # a batch, [N, ...] each

An environment delivers its observations either as an array space (Box, Discrete, MultiDiscrete,
MultiBinary) or as a flat Dict of array spaces. Nested Dict and Tuple spaces are flattened: the
names of the parts are joined by dots, and the entries of a Tuple are named "0", "1", ...

    read = flatten_space(env.observation_space)     # read.space, read(native) -> Obs
    read.dropped                                    # names of parts that no network can read (Text)

The helpers below handle both forms, so that storage and networks need no case distinction.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import Space as Space  # other rooms take it from here
from gymnasium_solver.spaces.space_types import (
    as_float32,
    is_array,
    is_box,
    is_dict,
    is_tuple,
    number_type,
)

if TYPE_CHECKING:
    from torch import Tensor


Obs = np.ndarray | dict[str, np.ndarray]
T = TypeVar("T")
R = TypeVar("R")


def map_obs(function: Callable[[T], R], obs: "T | dict[str, T]") -> "R | dict[str, R]":
    """Apply a function to the array, or to each part of a dict."""
    if isinstance(obs, dict):
        return {name: function(part) for name, part in obs.items()}
    return function(obs)


def obs_len(obs: Any) -> int:
    """Number of rows in a batch of observations."""
    return len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)


def join_obs(join: Callable[[Sequence[Any]], Any], batches: Sequence[Any]) -> Any:
    """Batches as one: `join` (np.concatenate, np.stack) of the arrays, or of those of each part."""
    if isinstance(batches[0], dict):
        return {name: join([part[name] for part in batches]) for name in batches[0]}
    return join(batches)


def take_rows(obs: Any, index: Any) -> Any:
    """The rows at `index` of every part."""
    if isinstance(obs, dict):
        return {name: part[index] for name, part in obs.items()}
    return obs[index]


def put_rows(target: Any, index: Any, obs: Any) -> None:
    """target[index] = obs, part by part."""
    if isinstance(target, dict):
        for name, part in target.items():
            part[index] = obs[name]
    else:
        target[index] = obs


def obs_arrays(obs: Any) -> Iterator[tuple[str, Any]]:
    """(name, array) of every part; the name of a plain array is ""."""
    if isinstance(obs, dict):
        yield from obs.items()
    else:
        yield "", obs


def part_spaces(space: Space) -> dict[str, Space]:
    """The parts of a delivered observation space by name; {"": space} for an array space."""
    return dict(space.spaces) if is_dict(space) else {"": space}


def layout(space: Space) -> dict[str, Any]:
    """Shape and dtype of each part."""
    return {name: number_type(part) for name, part in part_spaces(space).items()}


def space_of(parts: Mapping[str, Space]) -> Space:
    """The inverse of `part_spaces`."""
    # As pairs: Gymnasium sorts the keys of a plain dict.
    return parts[""] if "" in parts else spaces.Dict(list(parts.items()))


def obs_of(parts: Mapping[str, T]) -> "T | dict[str, T]":
    """The inverse of `obs_arrays`."""
    return parts[""] if "" in parts else dict(parts)


def allocate_obs(space: Space, lead: tuple[int, ...]) -> Obs:
    """Zeros for observations of a delivered space, [*lead, *shape] each."""
    parts = part_spaces(space).items()
    return obs_of({name: np.zeros((*lead, *(p.shape or ())), p.dtype) for name, p in parts})


def unit_scale(space: Space) -> tuple[np.ndarray, np.ndarray] | None:
    """(low, factor), flat: `(x - low) * factor` takes a uint8 space to [0, 1] by its bounds.

    None for other spaces, whose values networks read as they are. Numbers without a range (low =
    high) have 0 and 1/255 if all are so, else a factor of 1."""
    if not is_box(space) or space.dtype != np.uint8:
        return None
    low, high = (b.reshape(-1).astype(np.float64) for b in (space.low, space.high))
    span = high - low
    if not span.any():
        return np.zeros_like(low), np.full_like(low, 1 / 255)
    return low, 1 / np.where(span > 0, span, 1.0)


# -- from what an environment returns -------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Converts what an environment or an engine returns to observations of `space`."""

    space: Space
    read: Callable[[Any], Obs] = np.asarray
    dropped: tuple[str, ...] = ()
    """Names of the parts that no network can read (Text, Graph, Sequence)."""

    def __call__(self, native: Any) -> Obs:
        """Convert a native observation, single or batched; arrays are not copied."""
        return self.read(native)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the parts that are left out."""
        left_out = "is left out: no network reads it"
        return tuple(f"observation part {name!r} {left_out}" for name in self.dropped)


def flatten_space(space: Space, env_id: str = "") -> Reader:
    """How to read the observations of a space; raises EnvError if no part can be delivered."""
    if is_array(space):
        return Reader(space)
    leaves = dict(_leaves(space, ""))
    parts = {name: part for name, part in leaves.items() if is_array(part)}
    if not parts:
        raise unsupported(space, env_id)
    names = list(parts)

    def read(native: Any) -> Obs:
        return {name: np.asarray(native_part(native, name)) for name in names}

    return Reader(space_of(parts), read, tuple(name for name in leaves if name not in parts))


def unsupported(space: Space, env_id: str = "") -> EnvError:
    return EnvError(
        f"{env_id}{': ' if env_id else ''}observations of type {type(space).__name__} are not "
        f"supported: none of {space} can be read. Supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these."
    )


def delivered_space(space: Space, env_id: str) -> Space:
    """The observation space as delivered: an array space or a flat Dict of array spaces."""
    parts = {name: as_float32(part) for name, part in part_spaces(space).items()}
    if not all(map(is_array, parts.values())):
        raise unsupported(space, env_id)
    return space_of(parts)


def deliverer(space: Space) -> Callable[[Any], Obs]:
    """A function from an engine's own arrays to contiguous ones of the delivered dtypes."""
    if not is_dict(space):
        dtype = space.dtype
        return lambda obs: obs.astype(dtype, order="C", copy=False)
    dtypes = {name: part.dtype for name, part in space.spaces.items()}
    return lambda obs: {
        name: obs[name].astype(dtype, order="C", copy=False) for name, dtype in dtypes.items()
    }


def _leaves(space: Space, name: str) -> Iterator[tuple[str, Space]]:
    inner: Mapping[str, Space]
    if is_dict(space):
        inner = space.spaces
    elif is_tuple(space):
        inner = {str(i): part for i, part in enumerate(space.spaces)}
    else:
        yield name, space
        return
    for key, part in inner.items():
        yield from _leaves(part, f"{name}.{key}" if name else str(key))


def native_part(native: Any, name: str) -> Any:
    """The part of a nested observation with this flat name."""
    if isinstance(native, Mapping):
        if name in native:
            return native[name]
        key, _, rest = name.partition(".")
        while key not in native:
            more, _, rest = rest.partition(".")
            if not more:
                raise KeyError(name)
            key = f"{key}.{more}"
        return native_part(native[key], rest)
    if isinstance(native, tuple | list):
        key, _, rest = name.partition(".")
        return native_part(native[int(key)], rest) if rest else native[int(key)]
    raise KeyError(name)


def as_batch(space: Space, native: Any, unread: Collection[str] = ()) -> tuple[Obs, bool]:
    """Convert an observation, or a batch of them, to a batch; also return whether it was single.

    A batch of observations in parts is one observation of arrays (as vectorised environments give
    it), or a list of observations. Raises EnvError if it does not match the space. `unread`: parts
    that need not be there, which become zeros."""
    if unread and is_dict(space):
        read = spaces.Dict({name: s for name, s in space.items() if name not in unread})
        found, is_single = as_batch(read, native)
        zeros = allocate_obs(space, (obs_len(found),))
        return dict(obs_arrays(zeros)) | dict(obs_arrays(found)), is_single
    if is_dict(space):
        arrays = {name: _part_array(space, native, name) for name in space.spaces}
    else:
        arrays = {"": _as_array(space, native)}
    parts = part_spaces(space)
    singles = {_is_single(parts[n].shape or (), array.shape, n) for n, array in arrays.items()}
    if len(singles) > 1:
        raise EnvError("some parts of the observation are single and some are batched.")
    is_single = singles.pop()
    if not is_single and len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise EnvError(f"the parts of the observation have different numbers of rows: {lengths}.")
    obs = obs_of(arrays)
    return (map_obs(lambda array: array[None], obs) if is_single else obs), is_single


def _part_array(space: spaces.Dict, native: Any, name: str) -> np.ndarray:
    part = space.spaces[name]
    try:
        if isinstance(native, list) and native and isinstance(native[0], Mapping | tuple):
            return _as_array(part, [native_part(item, name) for item in native])
        return _as_array(part, native_part(native, name))
    except (KeyError, IndexError, ValueError, TypeError):
        raise EnvError(
            f"the observation has no part {name!r}; this policy takes {_listing(space)}."
        ) from None


def _as_array(space: Space, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if space.dtype == np.float32 and array.dtype.kind in "fiub":
        return array.astype(np.float32, copy=False)
    return array


def _is_single(expected: Sequence[int], got: Sequence[int], name: str) -> bool:
    if tuple(got) == tuple(expected):
        return True
    if tuple(got[1:]) == tuple(expected) and len(got) == len(expected) + 1:
        return False
    batch = ", ".join(map(str, ("n", *expected)))
    part = f" in its part {name!r}" if name else ""
    raise EnvError(
        f"act() got an observation of shape {tuple(got)}{part}; this policy takes "
        f"{tuple(expected)}, or a batch ({batch})."
    )


def _listing(space: spaces.Dict) -> str:
    return ", ".join(f"{name} {part.shape or ()}" for name, part in space.spaces.items())


# -- images ---------------------------------------------------------------------------------------


MOST_CHANNELS_LAST = 4  # of a frame in a frame stack: greyscale to RGBA
LEAST_PLANE = 32  # a two-dimensional uint8 array is an image from this size on
LEAST_SIDE = 8  # of the images that `policy: auto` recognises


class ImageLayout(NamedTuple):
    """The axes of an image: `order` permutes one observation to [channels, height, width] or, for a
    frame stack, to [frames, channels, height, width]."""

    channels: int  # total over all frames
    height: int
    width: int
    order: tuple[int, ...]

    def planes(self, obs: "Tensor") -> "Tensor":
        """[B, *shape] -> [B, channels, height, width]."""
        if len(self.order) == 2:
            return obs.unsqueeze(1)
        if self.order != tuple(range(len(self.order))):
            obs = obs.permute(0, *(axis + 1 for axis in self.order))
        return obs.flatten(1, 2) if len(self.order) == 4 else obs


def image_layout(space: Space) -> ImageLayout | None:
    """Return the image layout, or None if the space is not an image.

    Three axes: the shorter of the first and the last axis is the channels; if equal, the first.
    Four axes: a frame stack, with channels last if there are at most 4, otherwise channels after
    the stack axis. Two axes, uint8, at least 32 x 32: one greyscale plane."""
    shape = space.shape if isinstance(space, spaces.Box) else None
    if shape is None or min(shape, default=0) < 1:
        return None
    if len(shape) == 2 and min(shape) >= LEAST_PLANE and space.dtype == np.uint8:
        return ImageLayout(1, shape[0], shape[1], (0, 1))
    order: tuple[int, ...]
    if len(shape) == 3:
        order = (0, 1, 2) if shape[0] <= shape[2] else (2, 0, 1)
    elif len(shape) == 4:
        order = (0, 3, 1, 2) if shape[3] <= MOST_CHANNELS_LAST else (0, 1, 2, 3)
    else:
        return None
    *stack, height, width = (shape[axis] for axis in order)
    return ImageLayout(int(np.prod(stack)), height, width, order)


def is_image(space: Space) -> bool:
    """Whether a space is taken for an image without being told: pixels (uint8 from 0 to 255) of at
    least 8 x 8. A board of zeros and ones or a small grid of codes is not."""
    layout = image_layout(space)
    if layout is None or space.dtype != np.uint8 or shorter(layout) < LEAST_SIDE:
        return False
    assert isinstance(space, spaces.Box)
    return bool(space.low.min() == 0 and space.high.max() == 255)


def shorter(layout: ImageLayout) -> int:
    return min(layout.height, layout.width)


# -- goals ----------------------------------------------------------------------------------------


ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
# (achieved goals after the step [B, ...], desired goals [B, ...]) -> [B]
GoalFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class GoalFunctions:
    """Reward and end of a step as functions of goals, for batches."""

    reward: GoalFunction  # float32[B]
    terminated: GoalFunction | None = None
    """bool[B]. None: the end of an episode does not depend on the goal, or it is not known how."""


def check_goal_space(space: Space, env_id: str) -> None:
    """EnvError unless observations have an achieved and a desired goal of one form."""
    parts = part_spaces(space)
    if ACHIEVED not in parts or DESIRED not in parts:
        given = ", ".join(filter(None, parts)) or f"{type(space).__name__} observations"
        raise EnvError(
            f"her: {env_id} is not a goal environment: it needs Dict observations with the parts "
            f"{ACHIEVED} and {DESIRED}, but has {given}. Remove her."
        )
    achieved, desired = parts[ACHIEVED], parts[DESIRED]
    if (achieved.shape, achieved.dtype) != (desired.shape, desired.dtype):
        raise EnvError(
            f"her: {env_id} has achieved goals {achieved} and desired goals {desired}, expected "
            "the same shape and dtype. Remove her."
        )
