"""Objects of Atari games, read from the console's 128 bytes of RAM.

    reader = ObjectReader("ALE/Pong-v5", n_envs=8)
    obs = reader(ram, opened)          # uint8 (8, 128) -> float32 (8, len(reader.names))

`OBJECTS` has the bytes of each game. They were found by fitting bytes to the pixels of the sprites,
or are those that AtariARI and OCAtari publish, and tests/envs/test_atari_objects.py holds each of
them against the screen. OCAtari itself is not used: it needs NumPy below 2 and OpenCV, and keeps a
part of its state in its modules, which several environments would share.
"""

from dataclasses import dataclass

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


def _ghost(name: str, index: int) -> Thing:
    return Thing(name, Axis(6 + index, -8.5), Axis(12 + index, 5.5))


OBJECTS: dict[str, tuple[Thing, ...]] = {
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
    "Alien": (
        Thing("player", Axis(52, 20.0), Axis(45, 202.0, -2)),
        *(
            Thing(f"alien_{i + 1}", Axis(49 + i, 21.0), Axis(42 + i, 200.5, -2), shown_at=42 + i)
            for i in range(3)
        ),
    ),
    "Asterix": (
        Thing("player", Axis(41, 3.5), Axis(39, 31.0, 16)),
        *(
            Thing(f"item_{i + 1}", x=Axis(42 + i, 3.5), shown_at=18 - i, hidden=11)
            for i in range(8)
        ),
        *(Thing(f"item_{i + 1}_is_enemy", shown_at=29 + i, mask=1) for i in range(8)),
    ),
    "Berzerk": (
        Thing("player", Axis(19, 6.5), Axis(11, 15.0)),
        Thing("missile", Axis(22, 2.0), Axis(23, 3.0, 2), shown_at=15),
        *(
            Thing(f"robot_{i + 1}", Axis(65 + i, 9.5), Axis(56 + i, 11.5, 2), shown_at=65 + i)
            for i in range(8)
        ),
    ),
    "Bowling": (
        Thing("player", Axis(29, 12.0), Axis(40, 154.5, -2)),
        Thing("ball", Axis(30, 8.5), Axis(41, 169.0, -2)),
        *(Thing(f"pin_{i + 1}", shown_at=57 + i, hidden=255) for i in range(10)),
    ),
    "Gopher": (
        Thing("player", x=Axis(31, -3.5)),
        Thing("gopher", Axis(41, 5.0), Axis(85, 189.0, -1)),
        *(Thing(f"carrot_{i + 1}", shown_at=52, mask=1 << i) for i in range(3)),
    ),
    "IceHockey": (
        Thing("player_1", Axis(59, -5.0), Axis(55, 178.0, -1)),
        Thing("player_2", Axis(57, -5.0), Axis(53, 178.0, -1)),
        Thing("enemy_1", Axis(60, -5.0), Axis(56, 178.0, -1)),
        Thing("enemy_2", Axis(58, -5.0), Axis(54, 178.0, -1)),
        Thing("puck", Axis(52, -9.0), Axis(91, 189.0, -1)),
    ),
    "Kangaroo": (
        Thing("player", Axis(17, 18.0), Axis(16, 15.0, 8)),
        Thing("child", x=Axis(83, 18.5)),
        *(
            Thing(f"monkey_{i + 1}", Axis(15 - i, 19.0), Axis(11 - i, 12.0, 8), 11 - i, 127, 127)
            for i in range(4)
        ),
        Thing("falling_coconut", Axis(34, 14.5), shown_at=33, hidden=255),
    ),
    "MontezumaRevenge": (
        Thing("player", Axis(42, 2.5), Axis(43, 317.5, -1)),
        Thing("skull", x=Axis(47, 35.5)),
        *(Thing(f"room_bit_{i}", shown_at=3, mask=1 << i) for i in range(5)),
    ),
    "Pitfall": (
        Thing("player", Axis(97, 3.5), Axis(105, 79.0)),
        Thing("log", x=Axis(98, 4.0)),
        Thing("scorpion", x=Axis(99, 3.5)),
        *(Thing(f"ground_bit_{i}", shown_at=20, mask=1 << i) for i in range(3)),
        *(Thing(f"hazard_bit_{i}", shown_at=19, mask=1 << i) for i in range(3)),
    ),
    "Seaquest": (
        Thing("player", Axis(70, 7.5), Axis(97, 38.0)),
        Thing("missile", Axis(103, 3.5), Axis(97, 40.0), shown_at=103),
        *(
            Thing(
                f"enemy_{lane + 1}_{slot + 1}",
                x=Axis(30 + lane, 3.5, shift=16 * slot),
                shown_at=36 + lane,
                mask=4 >> slot,
            )
            for lane in range(4)
            for slot in range(3)
        ),
        *(
            Thing(f"diver_or_missile_{lane + 1}", x=Axis(71 + lane, 3.5), shown_at=71 + lane)
            for lane in range(4)
        ),
        Thing("oxygen", x=Axis(102, 49.0)),
        Thing("divers_aboard", x=Axis(62, 53.5, 8), shown_at=62),
    ),
    "Skiing": (
        Thing("player", x=Axis(25, 4.5)),
        *(
            Thing(f"gate_{i + 1}", Axis(62 + i, 19.0), Axis(86 + i, 188.5, -1), 70 + i, mask=2)
            for i in range(8)
        ),
        *(
            Thing(f"tree_{i + 1}", Axis(62 + i, 4.0), Axis(86 + i, 193.0, -1), 70 + i, mask=16)
            for i in range(8)
        ),
    ),
    "SpaceInvaders": (
        Thing("player", x=Axis(28, 2.5)),
        Thing("invaders", Axis(26, 2.5), Axis(16, 35.5, 2)),
        Thing("bullet", Axis(87, -2.0), Axis(85, 8.0, 2), shown_at=85, mask=128, hidden=128),
        *(
            Thing(
                f"bomb_{i + 1}",
                Axis(83 + i, -2.0),
                Axis(81 + i, 8.0, 2),
                shown_at=81 + i,
                mask=128,
                hidden=128,
            )
            for i in range(2)
        ),
        *(
            Thing(f"invader_{row + 1}_{column + 1}", shown_at=18 + row, mask=1 << column)
            for row in range(6)
            for column in range(6)
        ),
    ),
    "Tennis": (
        Thing("upper", Axis(26, 4.0), Axis(24, 175.0, -1)),
        Thing("lower", Axis(27, 4.0), Axis(25, 176.0, -1)),
        Thing("ball", Axis(16, -2.0), Axis(54, 190.0, -1), shown_at=16, mask=252),
        Thing("shadow", Axis(16, -2.0), Axis(55, 190.0, -1), shown_at=16, mask=252),
        Thing("player_is_lower", shown_at=80),
    ),
}


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
        axes: list[Axis] = []
        names: list[str] = []
        sizes: list[float] = []  # of each axis: half the screen
        shown: list[int] = []  # of each axis: the place of its object among the flags, or the last
        pairs: list[tuple[int, int]] = []  # axes, and the player's, from which they are measured
        player: dict[str, int] = {}
        for thing in things:
            for label, axis, half in (("x", thing.x, HALF_WIDTH), ("y", thing.y, HALF_HEIGHT)):
                if axis is None:
                    continue
                if thing is things[0]:
                    player[label] = len(names)
                elif label in player:
                    pairs.append((len(names), player[label]))
                names.append(f"{thing.name}_{label}")
                axes.append(axis)
                sizes.append(half)
                shown.append(len(flagged) if thing.shown_at is None else flagged.index(thing))
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
        self._scales = np.array([axis.scale for axis in axes], np.float32)
        self._offsets = np.array([axis.offset for axis in axes], np.float32)
        self._flags = np.array([thing.shown_at for thing in flagged], np.int64)
        self._masks = np.array([thing.mask for thing in flagged], np.uint8)
        self._hidden = np.array([thing.hidden for thing in flagged], np.uint8)
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
