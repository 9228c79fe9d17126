"""From an environment's own observations to the delivered form: an array or a flat dict of arrays.

    read = reader(vec.single_observation_space, env_id)      # a batch, as a vectorised env gives it
    read.space, read.notes
    obs = read(native)

    env = FlatObservations(env)                               # a single Gymnasium env

Box, Discrete, MultiDiscrete and MultiBinary are delivered as they are. Dict and Tuple become a flat
dict: nested names are joined by dots, entries of a Tuple are named "0", "1". Text is tokenised
where a suite knows its words (MiniGrid's missions, suites/minigrid.py), else left out with a note.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.minigrid import MISSION_SPACE, encode_mission, is_mission
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import ARRAYS, Obs, flatten_space, native_part

Space = gymnasium.spaces.Space[Any]
spaces = gymnasium.spaces


@dataclass(frozen=True)
class Reader:
    """What an engine gives -> observations of `space`; `read` is None where nothing is to do."""

    space: Space
    read: Callable[[Any], Obs] | None = None
    notes: tuple[str, ...] = ()

    def __call__(self, native: Any) -> Obs:
        return native if self.read is None else self.read(native)


def reader(space: Space, env_id: str) -> Reader:
    """How to read batches of observations; EnvError where no part can be delivered."""
    if isinstance(space, ARRAYS):
        return Reader(space)
    flat, dropped = _flatten(space, env_id)
    names = list(flat.spaces)

    def read(native: Any) -> Obs:
        return {name: np.asarray(native_part(native, name)) for name in names}

    return Reader(flat, read, left_out(dropped))


def left_out(names: tuple[str, ...]) -> tuple[str, ...]:
    """The notes about parts that are not delivered."""
    return tuple(f"observation part {name!r} is left out: no network reads it" for name in names)


def _flatten(space: Space, env_id: str) -> tuple[spaces.Dict, tuple[str, ...]]:
    try:
        flat = flatten_space(space)
    except EnvError:
        raise EnvError(
            f"{env_id}: none of its observations can be read: {space}. Supported are Box, "
            "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these."
        ) from None
    assert isinstance(flat.space, spaces.Dict)
    return flat.space, flat.dropped


class FlatObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A single env whose Dict or Tuple observations are a flat dict of arrays."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        tokenised = _tokenised(env.observation_space)
        flat, dropped = _flatten(tokenised, env_id)
        self.observation_space = flat
        self.notes = left_out(dropped)
        self._parts = [
            (name, encode_mission if part is MISSION_SPACE else None)
            for name, part in flat.spaces.items()
        ]

    def observation(self, observation: Any) -> dict[str, Any]:
        return {
            name: native_part(observation, name)
            if encode is None
            else encode(native_part(observation, name))
            for name, encode in self._parts
        }


def _tokenised(space: Space) -> Space:
    """The space with the text that can be tokenised replaced by what it becomes."""
    if isinstance(space, spaces.Dict):
        # As pairs: of a plain dict Gymnasium sorts the keys.
        return spaces.Dict([(key, _tokenised(part)) for key, part in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_tokenised(part) for part in space.spaces])
    return MISSION_SPACE if is_mission(space) else space
