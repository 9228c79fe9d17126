"""Observations of any kind as one array, which is all that the contract knows.

    read = reader(env.single_observation_space, env_id)
    read.space                      # what comes out
    array = read(native)            # what the engine gave -> (N, *read.space.shape)

- Box, Discrete, MultiDiscrete, MultiBinary: as they are;
- Tuple and Dict: one float32 vector, the parts in the order of the space (a Dict's is
  alphabetical): numbers as they are, a Discrete part one-hot. Blackjack's three numbers become 45.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError

Space = gymnasium.spaces.Space[Any]
spaces = gymnasium.spaces
# Kinds of observations that are arrays as they are.
ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Reader:
    """What an engine gives -> an array of `space`; None where nothing is to be done."""

    space: Space
    read: Callable[[Any], np.ndarray] | None = None

    def __call__(self, native: Any) -> np.ndarray:
        return native if self.read is None else self.read(native)


def reader(space: Space, env_id: str) -> Reader:
    """How to read the observations of a space; EnvError for kinds that cannot be an array."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return flat_reader(space, env_id)
    if isinstance(space, ARRAYS):
        return Reader(space)
    raise _refusal(space, env_id)


def flat_reader(space: Space, env_id: str) -> Reader:
    """One vector of everything in a space, nested ones included."""
    parts = list(_parts(space, (), env_id))
    low = np.concatenate([part.low for part in parts])
    high = np.concatenate([part.high for part in parts])

    def read(native: Any) -> np.ndarray:
        return np.concatenate([part.read(_at(native, part.path)) for part in parts], axis=1)

    return Reader(spaces.Box(low, high, dtype=np.float32), read)


@dataclass(frozen=True)
class _Part:
    path: tuple[Any, ...]
    low: np.ndarray
    high: np.ndarray
    read: Callable[[Any], np.ndarray]


def _parts(space: Space, path: tuple[Any, ...], env_id: str) -> Any:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _parts(inner, (*path, key), env_id)
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _parts(inner, (*path, index), env_id)
    elif isinstance(space, spaces.Discrete):
        table = np.eye(int(space.n), dtype=np.float32)
        start = int(space.start)
        yield _Part(
            path,
            np.zeros(len(table), np.float32),
            np.ones(len(table), np.float32),
            lambda native: table[np.asarray(native).reshape(-1) - start],
        )
    elif isinstance(space, spaces.MultiDiscrete):
        yield _multi_discrete(space, path)
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        low, high = (space.low, space.high) if isinstance(space, spaces.Box) else (0, 1)
        width = int(np.prod(space.shape, dtype=int))
        yield _Part(
            path,
            np.broadcast_to(np.float32(low), space.shape).reshape(width),
            np.broadcast_to(np.float32(high), space.shape).reshape(width),
            lambda native: np.asarray(native, np.float32).reshape(-1, width),
        )
    else:
        raise _refusal(space, env_id, path)


def _multi_discrete(space: Any, path: tuple[Any, ...]) -> _Part:
    """Several numbers, each one-hot."""
    sizes, starts = space.nvec.reshape(-1), space.start.reshape(-1)
    tables = [np.eye(int(n), dtype=np.float32) for n in sizes]
    width = int(sizes.sum())

    def read(native: Any) -> np.ndarray:
        columns = np.asarray(native).reshape(-1, len(sizes)) - starts
        return np.concatenate([t[columns[:, i]] for i, t in enumerate(tables)], axis=1)

    return _Part(path, np.zeros(width, np.float32), np.ones(width, np.float32), read)


def _at(native: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        native = native[key]
    return native


def _refusal(space: Space, env_id: str, path: tuple[Any, ...] = ()) -> EnvError:
    where = f" ({'.'.join(map(str, path))})" if path else ""
    return EnvError(
        f"{env_id}: observations of type {type(space).__name__}{where} are not supported, only "
        "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them. Leave it out "
        "inside the environment."
    )


def named(keys: Mapping[str, int]) -> Callable[[list[np.ndarray]], dict[str, Any]]:
    """A reader of the parts that lie in a list: {"a.b": index} -> {"a": {"b": part}}."""

    def gather(parts: list[np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, index in keys.items():
            *outer, last = key.split(".")
            block = found
            for name in outer:
                block = block.setdefault(name, {})
            block[last] = parts[index]
        return found

    return gather
