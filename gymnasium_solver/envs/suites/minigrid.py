"""MiniGrid's observations as a vector: EnvPool steps them, this module reads them.

What the agent sees is a 7 x 7 view of cells, each an object, a colour and a state, the way it
looks, and a text that says what to do. Numbers that are names make poor inputs, so by default each
is one-hot: 49 x (11 objects + 6 colours + 4 states), 4 directions, and for the mission the first
three verbs and things with their colours, in the order in which the text names them ("put
the red ball near the blue box"): 1,078 numbers of 0 and 1. Longer missions (BabyAI's) are cut.
env_kwargs `observation: image` gives the view alone instead, uint8 (7, 7, 3).
"""

import re
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.observations import Reader
from gymnasium_solver.errors import EnvError

KINDS = ("onehot", "image")
VIEW = (7, 7, 3)
SIZES = (11, 6, 4)
"""Objects, colours, states of a cell, as MiniGrid numbers them."""
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
THINGS = ("key", "ball", "box", "door", "room")
VERBS = ("go", "pick", "open", "put")
MOST = 3
"""Verbs and things of a mission that are told."""
_THING = re.compile(rf"\b(?:({'|'.join(COLOURS)}) )?({'|'.join(THINGS)})\b")
_VERB = re.compile(rf"\b({'|'.join(VERBS)})\b")


def minigrid_reader(space: Any, env_id: str, kind: str = "onehot") -> Reader:
    """How to read {direction, image, mission}, as EnvPool names them."""
    if kind not in KINDS:
        raise EnvError(f"{env_id}: observation must be {' or '.join(KINDS)}, got {kind!r}.")
    if space["image"].shape != VIEW:
        raise EnvError(f"{env_id}: its view is {space['image'].shape}, expected {VIEW}.")
    if kind == "image":
        return Reader(space["image"], lambda native: native["image"])
    width = VIEW[0] * VIEW[1] * sum(SIZES) + 4 + MOST * (len(VERBS) + len(COLOURS) + len(THINGS))
    return Reader(gymnasium.spaces.Box(0.0, 1.0, (width,), np.float32), OneHot())


class OneHot:
    """The parts of an observation, one-hot, side by side."""

    def __init__(self) -> None:
        offsets = np.cumsum((0, *SIZES[:-1]))
        n_cells, n_each = VIEW[0] * VIEW[1], sum(SIZES)
        # Where in the vector the 1 of each number of the view lies, before the number is added.
        self._places = (np.arange(n_cells)[:, None] * n_each + offsets).reshape(-1)
        self._most = np.tile(np.array(SIZES) - 1, n_cells)
        self._width = n_cells * n_each
        self._directions = np.eye(4, dtype=np.float32)
        self._missions: dict[bytes, np.ndarray] = {}

    def __call__(self, native: dict[str, np.ndarray]) -> np.ndarray:
        image = native["image"]
        numbers = np.minimum(image.reshape(len(image), -1), self._most)
        view = np.zeros((len(image), self._width), np.float32)
        view[np.arange(len(image))[:, None], self._places + numbers] = 1.0
        missions = np.stack([self._mission(row.tobytes()) for row in native["mission"]])
        return np.concatenate([view, self._directions[native["direction"]], missions], axis=1)

    def _mission(self, text: bytes) -> np.ndarray:
        if text not in self._missions:
            self._missions[text] = encode_mission(text.split(b"\0")[0].decode("ascii", "replace"))
        return self._missions[text]


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
