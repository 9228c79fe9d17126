"""MiniGrid's observations: a view of cells, the agent's direction, and a mission in words.

EnvPool and the `minigrid` package give the same three parts; this module makes of them what
env_kwargs `observation` asks for (docs/suites.md#minigrid). A mission is its first three verbs and
its first three things with their colours, in the order in which the text names them ("put the red
ball near the blue box"); longer ones (BabyAI's) are cut.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs, space_of

PREFIXES = ("MiniGrid-", "BabyAI-")  # the ids of EnvPool and of the package begin with one of these
KINDS = ("onehot", "image", "dict")
SIZES = (11, 6, 4)  # objects, colours, states of a cell, as MiniGrid numbers them
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
THINGS = ("key", "ball", "box", "door", "room")
VERBS = ("go", "pick", "open", "put")
MOST = 3  # verbs and things of a mission that are encoded
MISSION_WIDTH = MOST * (len(VERBS) + len(COLOURS) + len(THINGS))
MISSION_SPACE = gymnasium.spaces.Box(0.0, 1.0, (MISSION_WIDTH,), np.float32)
_THING = re.compile(rf"\b(?:({'|'.join(COLOURS)}) )?({'|'.join(THINGS)})\b")
_VERB = re.compile(rf"\b({'|'.join(VERBS)})\b")


def is_mission(space: Any) -> bool:
    """Whether a space is the `minigrid` package's text of missions."""
    return any(  # BabyAI derives a class of its own
        kind.__name__ == "MissionSpace" and kind.__module__.startswith("minigrid")
        for kind in type(space).__mro__
    )


def minigrid_view(
    image: gymnasium.spaces.Space[Any], env_id: str, kind: Any
) -> tuple[gymnasium.spaces.Space[Any], Callable[[dict[str, Any]], Obs]]:
    """The delivered space for an image space, and how to make it of batches of the three parts:
    image (N, H, W, 3), direction (N,), mission (N, MISSION_WIDTH)."""
    shape = image.shape or ()
    if kind not in KINDS:
        raise EnvError(f"{env_id}: observation must be {', '.join(KINDS)}, got {kind!r}.")
    if len(shape) != 3 or shape[2] != len(SIZES):
        raise EnvError(f"{env_id}: its view has shape {shape}, expected (height, width, 3).")
    # The true bounds, by which a network scales: EnvPool and minigrid both declare 255.
    most = np.broadcast_to(np.array(SIZES, np.uint8) - 1, shape)
    view = gymnasium.spaces.Box(np.zeros(shape, np.uint8), most, dtype=np.uint8)
    if kind == "image":
        return view, lambda native: np.minimum(native["image"], most)
    if kind == "dict":
        parts = {"direction": gymnasium.spaces.Discrete(4), "image": view, "mission": MISSION_SPACE}
        return space_of(parts), lambda native: {
            name: np.minimum(native[name], most) if name == "image" else native[name]
            for name in parts
        }
    onehot = OneHot(shape[0] * shape[1])
    return gymnasium.spaces.Box(0.0, 1.0, (onehot.width,), np.float32), onehot


class OneHot:
    """The parts of an observation, one-hot, side by side."""

    def __init__(self, n_cells: int) -> None:
        offsets = np.cumsum((0, *SIZES[:-1]))
        n_each = sum(SIZES)
        # Index of the 1 of each number of the view, before the number is added.
        self._places = (np.arange(n_cells)[:, None] * n_each + offsets).reshape(-1)
        self._most = np.tile(np.array(SIZES) - 1, n_cells)
        self._n_view = n_cells * n_each
        self._directions = np.eye(4, dtype=np.float32)
        self.width = self._n_view + len(self._directions) + MISSION_WIDTH

    def __call__(self, native: dict[str, Any]) -> np.ndarray:
        image = native["image"]
        numbers = np.minimum(image.reshape(len(image), -1), self._most)
        view = np.zeros((len(image), self._n_view), np.float32)
        view[np.arange(len(image))[:, None], self._places + numbers] = 1.0
        directions = self._directions[native["direction"]]
        return np.concatenate([view, directions, native["mission"]], axis=1)


def encode_missions(rows: np.ndarray) -> np.ndarray:
    """Missions as EnvPool has them, rows of bytes, as vectors."""
    return np.stack([_known(row.tobytes()) for row in rows])


@lru_cache(10_000)
def _known(text: bytes) -> np.ndarray:
    return encode_mission(text.split(b"\0")[0].decode("ascii", "replace"))


def encode_mission(text: str) -> np.ndarray:
    """The first verbs and the first things of a mission, each one-hot; 0 where there is no more."""
    verbs = np.zeros((MOST, len(VERBS)), np.float32)
    for row, verb in zip(verbs, _VERB.findall(text), strict=False):
        row[VERBS.index(verb)] = 1.0
    things = np.zeros((MOST, len(COLOURS) + len(THINGS)), np.float32)
    for row, (colour, thing) in zip(things, _THING.findall(text), strict=False):
        row[len(COLOURS) + THINGS.index(thing)] = 1.0
        if colour:
            row[COLOURS.index(colour)] = 1.0
    return np.concatenate([verbs.reshape(-1), things.reshape(-1)])
