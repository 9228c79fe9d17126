"""Objects of Atari games, read from the console's 128 bytes of RAM.

    reader = ObjectReader("ALE/Pong-v5", n_envs=8)
    obs = reader(ram, opened)          # uint8 (8, 128) -> float32 (8, len(reader.names))

Every object gives its position (x in [-1, 1] from left to right, y from top to bottom), velocity
and, on the axes of the first one, which is the player's, its distance from there; one that can
vanish also gives 1 or 0, whether it is there, and zeros while it is not. Velocities and distances
are in units of 16 pixels, about a sprite: as shares of the screen, what decides whether a ball is
hit would be a few hundredths. A velocity is the change since the last step, 0 where the object was
not there before or has jumped (by more than 40 pixels: a new serve, the other end of a tunnel); a
distance is reported up to 80 pixels.

The addresses were found by fitting bytes to the pixels of the sprites, and the tests hold each
against the screen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError

HALF_WIDTH, HALF_HEIGHT = 80.0, 105.0  # of the screen, in pixels
UNIT = 16.0  # pixels
JUMP, FAR = 40.0, 80.0  # pixels


@dataclass(frozen=True)
class Axis:
    """Centre of a sprite in pixels = sign * byte + offset."""

    address: int
    offset: float
    sign: int = 1


@dataclass(frozen=True)
class Thing:
    """Something that moves; it is there while the byte at `shown_at` is not 0 (None: always)."""

    name: str
    x: Axis | None = None
    y: Axis | None = None
    shown_at: int | None = None


def _ghost(name: str, index: int) -> Thing:
    return Thing(name, Axis(6 + index, -8.5), Axis(12 + index, 5.5))


GAMES: dict[str, tuple[Thing, ...]] = {
    "Pong": (
        Thing("player", y=Axis(51, -6.0)),
        Thing("enemy", y=Axis(50, -7.5), shown_at=50),
        Thing("ball", Axis(49, -48.5), Axis(54, -12.5), shown_at=54),
    ),
    "Breakout": (
        Thing("paddle", x=Axis(72, -39.5)),
        Thing("ball", Axis(99, -48.5), Axis(101, 10.5), shown_at=101),
    ),
    "Boxing": (
        Thing("player", Axis(32, 11.5), Axis(34, 61.0)),
        Thing("enemy", Axis(33, 9.5), Axis(35, 60.0)),
    ),
    "Freeway": (
        Thing("chicken", y=Axis(14, 196.5, -1)),
        *(Thing(f"car_{lane}", x=Axis(118 - lane, 1.0)) for lane in range(1, 11)),
    ),
    "MsPacman": (
        Thing("player", Axis(10, -8.5), Axis(16, 5.5)),
        *(_ghost(name, i) for i, name in enumerate(("sue", "inky", "pinky", "blinky"))),
    ),
}


class ObjectReader:
    """Turns the RAM of N games into vectors; remembers the last positions for the velocities."""

    def __init__(self, env_id: str, n_envs: int) -> None:
        game = game_of(env_id)
        if game not in GAMES:
            known = ", ".join(f"ALE/{name}-v5" for name in GAMES)
            raise EnvError(
                f"{env_id}: its objects are not known; obs_type objects is for {known}. Use ram."
            )
        things = GAMES[game]
        columns = _columns(things)
        self.names, axes = columns.names, columns.axes
        self._sizes = np.array(columns.sizes, np.float32)
        self._apart, self._origin = (np.array(pair, np.int64) for pair in columns.pairs)
        self._addresses = np.array([axis.address for axis in axes])
        self._signs = np.array([axis.sign for axis in axes], np.float32)
        self._offsets = np.array([axis.offset for axis in axes], np.float32)
        # For each axis the byte that shows whether its object is present; 128 stands for always.
        self._shown = np.array([128 if address is None else address for address in columns.shown])
        flagged = [thing.shown_at for thing in things if thing.shown_at is not None]
        self._flags = np.array(flagged, np.int64)
        self._pixels = np.zeros((n_envs, len(axes)), np.float32)
        self._was_there = np.zeros((n_envs, len(axes)), np.bool_)
        counts = (len(axes), len(axes), len(self._apart), len(flagged))
        high = np.repeat(np.array([1.0, JUMP / UNIT, FAR / UNIT, 1.0], np.float32), counts)
        low = np.where(np.arange(len(high)) < len(high) - len(flagged), -high, np.float32(0))
        self.space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def __call__(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """float32 (N, F): positions, velocities, distances, what is there. `opened`: new games."""
        pixels = self._signs * ram[:, self._addresses] + self._offsets
        there = np.concatenate([ram, np.ones((len(ram), 1), np.uint8)], axis=1)[:, self._shown] > 0
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
                ram[:, self._flags] > 0,
            ],
            axis=1,
            dtype=np.float32,
        )


class _Columns(NamedTuple):
    names: list[str]  # of all numbers
    axes: list[Axis]
    sizes: list[float]  # of each axis: half the screen
    shown: list[int | None]  # of each axis: the byte that shows whether its object is present
    pairs: tuple[list[int], list[int]]  # axes, and the player's, from which they are measured


def _columns(things: tuple[Thing, ...]) -> _Columns:
    names: list[str] = []
    found = _Columns([], [], [], [], ([], []))
    player: dict[str, int] = {}
    for thing in things:
        for label, axis, half in (("x", thing.x, HALF_WIDTH), ("y", thing.y, HALF_HEIGHT)):
            if axis is None:
                continue
            if thing is things[0]:
                player[label] = len(names)
            elif label in player:
                found.pairs[0].append(len(names))
                found.pairs[1].append(player[label])
            names.append(f"{thing.name}_{label}")
            found.axes.append(axis)
            found.sizes.append(half)
            found.shown.append(thing.shown_at)
    velocities = [f"{name}_velocity" for name in names]
    distances = [f"{names[i]}_from_{things[0].name}" for i in found.pairs[0]]
    flags = [f"{thing.name}_is_there" for thing in things if thing.shown_at is not None]
    found.names.extend([*names, *velocities, *distances, *flags])
    return found


def game_of(env_id: str) -> str:
    """ALE/Pong-v5 -> Pong."""
    return env_id.removeprefix("ALE/").rpartition("-")[0]
