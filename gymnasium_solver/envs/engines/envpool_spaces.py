"""EnvPool's spaces, mended, and how its observations are read.

EnvPool returns a step as a list of arrays, with observations in one part (`obs`) or several
(`obs:position`, `obs:goal:x`, ...). `pool_reader` gives the array, or a dict of the parts.
"""

from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.readers import Reader, reader
from gymnasium_solver.envs.suites.minigrid import MissionReader, minigrid_view

Space = gymnasium.spaces.Space[Any]
MINIGRID = ("MiniGrid-", "BabyAI-")
_spaces = gymnasium.spaces
# Observation bounds of Box2D as Gymnasium's source has them: high, and the columns (ground
# contacts) whose low is 0; elsewhere low = -high.
_LEG = [np.pi, 5.0, np.pi, 5.0, 5.0]
BOX2D_BOUNDS: dict[str, tuple[list[float], list[int]]] = {
    "LunarLander": ([2.5, 2.5, 10.0, 10.0, 2 * np.pi, 10.0, 1.0, 1.0], [6, 7]),
    "BipedalWalker": ([np.pi, 5.0, 5.0, 5.0, *_LEG, *_LEG, *[1.0] * 10], [8, 13]),
}


def pool_reader(
    space: Space, pool_id: str, env_id: str, state_keys: list[str], kind: str
) -> Reader:
    """From the list that a pool returns to observations; `kind` is MiniGrid's env_kwargs key."""
    at = {
        key.partition(":")[2].replace(":", "."): i
        for i, key in enumerate(state_keys)
        if key.split(":")[0] == "obs"
    }
    if pool_id.startswith(MINIGRID):
        return _minigrid(space, env_id, at, kind)
    if not isinstance(space, _spaces.Dict):
        (index,) = at.values()
        return Reader(mended(space, pool_id), lambda state: state[index])
    flat = reader(mended(space), env_id)
    assert isinstance(flat.space, _spaces.Dict)
    indices = {name: at[name] for name in flat.space.spaces}
    return Reader(
        flat.space, lambda state: {name: state[i] for name, i in indices.items()}, flat.notes
    )


def _minigrid(space: Any, env_id: str, at: dict[str, int], kind: str) -> Reader:
    delivered, make = minigrid_view(space["image"], env_id, kind)
    image, direction, mission = at["image"], at["direction"], at["mission"]
    read_mission = MissionReader()
    if kind == "image":
        return Reader(delivered, lambda state: make({"image": state[image]}))
    return Reader(
        delivered,
        lambda state: make(
            {
                "image": state[image],
                "direction": state[direction],
                "mission": read_mission(state[mission]),
            }
        ),
    )


def mended(space: Space, pool_id: str = "") -> Space:
    """The space with usable bounds: from the table, or infinite where EnvPool's mean nothing."""
    if isinstance(space, gymnasium.spaces.Dict):
        # As pairs: of a plain dict Gymnasium sorts the keys.
        return gymnasium.spaces.Dict([(key, mended(part)) for key, part in space.spaces.items()])
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
        return space
    meaningless = (space.low > 0) & (space.low <= np.finfo(np.float32).tiny)
    if not meaningless.any():
        return space
    low, high = space.low.copy(), space.high.copy()
    low[meaningless], high[meaningless] = -np.inf, np.inf
    for prefix, (known_high, zero_columns) in BOX2D_BOUNDS.items():
        if pool_id.startswith(prefix):
            high = np.array(known_high, np.float32)
            low = -high
            low[zero_columns] = 0.0
    return gymnasium.spaces.Box(low, high, dtype=low.dtype.type)
