"""Objects of Atari games, read from the console's 128 bytes of RAM.

    reader = ObjectReader("ALE/Pong-v5", n_envs=8)
    obs = reader(ram, opened)          # uint8 (8, 128) -> float32 (8, len(reader.names))

`atari_objects.json` has the bytes of each game. They were found by fitting bytes to the pixels of
the sprites, or are those that AtariARI and OCAtari publish, and tests/envs/test_atari_objects.py
holds each of them against the screen. OCAtari itself is not used: it needs NumPy below 2 and
OpenCV, and keeps a part of its state in its modules, which several environments would share.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError

N_RAM = 128
HALF_WIDTH, HALF_HEIGHT = 80.0, 105.0  # of the screen, in pixels
UNIT = 16.0  # pixels
JUMP, FAR = 40.0, 80.0  # pixels


@dataclass(frozen=True)
class Axis:
    """Centre of a sprite in pixels = scale * (byte + shift) + offset; the sum is again a byte."""

    address: int
    offset: float
    scale: float = 1
    shift: int = 0


@dataclass(frozen=True)
class Thing:
    """Something that moves, or, without axes, a fact: a fruit that is left, which side one plays.

    It is there while the byte at `shown_at`, of which only the bits of `mask` count, is not
    `hidden` (None: always)."""

    name: str
    x: Axis | None = None
    y: Axis | None = None
    shown_at: int | None = None
    mask: int = 255
    hidden: int = 0


def game_of(env_id: str) -> str:
    """ALE/Pong-v5 -> Pong."""
    return env_id.removeprefix("ALE/").rpartition("-")[0]


def _things(rows: list[dict[str, Any]]) -> tuple[Thing, ...]:
    axes: list[dict[str, Any]] = [{n: Axis(*row[n]) for n in "xy" if n in row} for row in rows]
    return tuple(Thing(**(row | own)) for row, own in zip(rows, axes, strict=True))


_TABLE = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
OBJECTS = {game: _things(rows) for game, rows in json.loads(_TABLE).items()}


class ObjectReader:
    """Turns the RAM of N games into vectors; remembers the last positions for the velocities.

    Every object gives its position (x in [-1, 1] from left to right, y from top to bottom),
    velocity and, on the axes of the first one, which is the player's, its distance from there; one
    that can vanish also gives 1 or 0, whether it is there, and zeros while it is not. Velocities
    and distances are in units of 16 pixels, about a sprite: as shares of the screen, what decides
    whether a ball is hit would be a few hundredths. A velocity is the change since the last step, 0
    where the object was not there before or has jumped (by more than 40 pixels: a new serve, the
    other end of a tunnel); a distance is reported up to 80 pixels."""

    def __init__(self, env_id: str, n_envs: int) -> None:
        game = game_of(env_id)
        if game not in OBJECTS:
            known = ", ".join(f"ALE/{name}-v5" for name in OBJECTS)
            raise EnvError(
                f"{env_id}: its objects are not known; obs_type objects is for {known}. "
                "Use obs_type ram."
            )
        things = OBJECTS[game]
        flagged = [thing for thing in things if thing.shown_at is not None]
        found = [
            (thing, label, axis, half)
            for thing in things
            for label, axis, half in (("x", thing.x, HALF_WIDTH), ("y", thing.y, HALF_HEIGHT))
            if axis is not None
        ]
        names = [f"{thing.name}_{label}" for thing, label, _, _ in found]
        axes, sizes = [axis for _, _, axis, _ in found], [half for *_, half in found]
        # Of each axis the place of its object among the flags; the last for what is always there.
        shown = [flagged.index(t) if t in flagged else len(flagged) for t, *_ in found]
        player = {label: i for i, (t, label, _, _) in enumerate(found) if t is things[0]}
        # Axes, and the player's, from which they are measured.
        pairs = [
            (i, player[label])
            for i, (thing, label, _, _) in enumerate(found)
            if thing is not things[0] and label in player
        ]
        self.names = [
            *names,
            *(f"{name}_velocity" for name in names),
            *(f"{names[i]}_from_{things[0].name}" for i, _ in pairs),
            *(f"{t.name}_is_there" if t.x or t.y else t.name for t in flagged),
        ]
        self._sizes, self._shown = np.array(sizes, np.float32), np.array(shown)
        self._apart, self._origin = np.array(pairs, np.int64).reshape(-1, 2).T
        self._addresses = np.array([axis.address for axis in axes])
        self._shifts = np.array([axis.shift for axis in axes], np.uint8)
        self._scales, self._offsets = np.array([(a.scale, a.offset) for a in axes], np.float32).T
        self._flags = np.array([thing.shown_at for thing in flagged], np.int64)
        self._masks, self._hidden = (
            np.array([(thing.mask, thing.hidden) for thing in flagged], np.uint8).reshape(-1, 2).T
        )
        self._pixels: np.ndarray = np.zeros((n_envs, len(axes)), np.float32)
        self._was_there = np.zeros((n_envs, len(axes)), np.bool_)
        counts = (len(axes), len(axes), len(self._apart), len(flagged))
        high = np.repeat(np.array([1.0, JUMP / UNIT, FAR / UNIT, 1.0], np.float32), counts)
        low = np.where(np.arange(len(high)) < len(high) - len(flagged), -high, np.float32(0))
        self.space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def __call__(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """float32 (N, F): positions, velocities, distances, what is there. `opened`: new games."""
        pixels: np.ndarray = self._scales * (ram[:, self._addresses] + self._shifts) + self._offsets
        flags = (ram[:, self._flags] & self._masks) != self._hidden
        there = np.concatenate([flags, np.ones((len(ram), 1), np.bool_)], axis=1)[:, self._shown]
        moved = pixels - self._pixels
        is_known = there & self._was_there & ~opened[:, None] & (np.abs(moved) <= JUMP)
        self._pixels, self._was_there = pixels, there
        distance = np.clip(pixels[:, self._apart] - pixels[:, self._origin], -FAR, FAR)
        position = np.clip((pixels - self._sizes) / self._sizes, -1.0, 1.0)
        return np.concatenate(
            [
                np.where(there, position, 0.0),
                np.where(is_known, moved / UNIT, 0.0),
                np.where(there[:, self._apart], distance / UNIT, 0.0),
                flags,
            ],
            axis=1,
            dtype=np.float32,
        )
