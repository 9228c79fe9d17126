"""Objects read from RAM, held against the pixels of the sprites on the screen."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from gymnasium_solver.config.field_docs import field_docs
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.atari_objects import JUMP, OBJECTS, UNIT, ObjectReader, Thing
from gymnasium_solver.errors import EnvError

# Colour of a sprite, and where on the screen (top, bottom, left, right) nothing else has it.
SPRITES: dict[str, dict[str, tuple[tuple[int, int, int], tuple[int, int, int, int]]]] = {
    "Pong": {
        "player": ((92, 186, 92), (34, 194, 130, 160)),
        "enemy": ((213, 130, 74), (34, 194, 0, 40)),
        "ball": ((236, 236, 236), (34, 194, 0, 160)),
    },
    "Breakout": {
        "paddle": ((200, 72, 72), (190, 193, 8, 152)),
        "ball": ((200, 72, 72), (94, 187, 8, 152)),
    },
    "Boxing": {
        "player": ((214, 214, 214), (36, 178, 32, 128)),
        "enemy": ((0, 0, 0), (36, 178, 32, 128)),
    },
    "Freeway": {"chicken": ((252, 252, 84), (114, 196, 44, 52))},
    "MsPacman": {
        "player": ((210, 164, 74), (0, 170, 0, 160)),
        "sue": ((180, 122, 48), (0, 170, 0, 160)),
        "inky": ((84, 184, 153), (0, 170, 0, 160)),
        "pinky": ((198, 89, 179), (0, 170, 0, 160)),
        "blinky": ((200, 72, 72), (0, 170, 0, 160)),
    },
}
# Pixels. Arms reach out, and the ball passes by the paddle in its colour.
TOLERANCE = {"Boxing": 9.0, "Breakout": 4.5, "MsPacman": 4.0}


def centre(frame: np.ndarray, colour: Any, crop: Any) -> tuple[float, float] | None:
    """Middle (x, y) of the box around the pixels of a colour; None where there are none, where the
    sprite is cut off, or where there are so many that something else has it, too."""
    top, bottom, left, right = crop
    rows, columns = np.nonzero((frame[top:bottom, left:right] == np.array(colour)).all(axis=-1))
    if (
        colour != (200, 72, 72)
        and len(rows)
        and not 0 < rows.min() <= rows.max() < bottom - top - 1
    ):
        return None
    if not 3 <= len(rows) <= 500 or np.ptp(columns) > 30 or np.ptp(rows) > 55:
        return None
    return (columns.min() + columns.max()) / 2 + left, (rows.min() + rows.max()) / 2 + top


class Seen(NamedTuple):
    """What is on the screen at a told position."""

    colours: tuple[tuple[int, int, int], ...]
    rows: tuple[int, int] = (0, 210)
    """Of a thing without a y."""
    lane: int = 0
    """Pixels from the rows of the first of several to those of the next."""
    within: int = 3
    """Pixels."""
    share: float = 0.8
    """Of the frames in which it is told; some sprites flicker."""


# By the names without their numbers: several have the same colours.
SEEN: dict[str, dict[str, Seen]] = {
    "Alien": {
        "player": Seen(((132, 144, 252),), share=0.55),
        "alien": Seen(((132, 252, 212), (252, 252, 84), (236, 140, 224), (101, 111, 228))),
    },
    "Asterix": {
        "player": Seen(((187, 187, 53),)),
        "item": Seen(((184, 50, 50), (170, 170, 170)), (26, 38), 16),
    },
    "Berzerk": {
        "player": Seen(((240, 170, 103),), within=4),
        "missile": Seen(((240, 170, 103),)),
        "robot": Seen(((198, 108, 58), (210, 210, 64)), within=4),
    },
    "Bowling": {
        "player": Seen(((84, 92, 214),)),
        "ball": Seen(((45, 50, 184),), within=2),
    },
    "Gopher": {
        "player": Seen(((84, 92, 214),), (90, 150)),
        "gopher": Seen(((72, 44, 0),), within=4),
    },
    "IceHockey": {
        "player": Seen(((184, 50, 50),)),
        "enemy": Seen(((82, 126, 45),)),
        "puck": Seen(((0, 0, 0),)),
    },
    "Kangaroo": {
        "player": Seen(((223, 183, 85),), within=4),
        "child": Seen(((223, 183, 85),), (12, 27)),
        "monkey": Seen(((227, 151, 89),), within=4, share=0.6),
        "falling_coconut": Seen(((162, 98, 33),), (40, 140), within=1, share=0.4),
    },
    "MontezumaRevenge": {
        "player": Seen(((200, 72, 72), (210, 182, 86))),
        "skull": Seen(((236, 236, 236),), (165, 180)),
    },
    "Pitfall": {
        "player": Seen(((92, 186, 92),), share=0.7),
        "log": Seen(((105, 105, 15),), (112, 134), within=4, share=0.1),
        "scorpion": Seen(((236, 236, 236),), (165, 182)),
    },
    "Seaquest": {
        "player": Seen(((187, 187, 53),)),
        "missile": Seen(((187, 187, 53),), within=1),
        "enemy": Seen(((92, 186, 92), (170, 170, 170)), (138, 156), -24),
        "diver_or_missile": Seen(((66, 72, 200),), (138, 156), -24),
        "oxygen": Seen(((163, 57, 21),), (170, 175), within=1, share=0.7),
        "divers_aboard": Seen(((24, 26, 167),), (176, 190)),
    },
    "Skiing": {
        "player": Seen(((214, 92, 92),), (30, 80)),
        "gate": Seen(((66, 72, 200), (184, 50, 50)), within=19),
        "tree": Seen(((82, 126, 45), (110, 156, 66), (72, 160, 72), (158, 208, 101)), within=4),
    },
    "SpaceInvaders": {
        "player": Seen(((50, 132, 50),), (185, 195)),
        "bullet": Seen(((142, 142, 142),), within=1, share=0.35),
        "bomb": Seen(((142, 142, 142),), within=1, share=0.08),
    },
    "Tennis": {
        "upper": Seen(((240, 128, 128), (117, 128, 240))),
        "lower": Seen(((240, 128, 128), (117, 128, 240))),
        "ball": Seen(((236, 236, 236),), within=1),
        "shadow": Seen(((74, 74, 74),), within=1),
    },
}


COME_LATE = {"Kangaroo": 1000, "SpaceInvaders": 600}  # monkeys, bombs: after so many steps


def played(game: str, n_steps: int = 300, unseen: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The RAM and the screen of each step after the first ones, with random actions that last."""
    options = {"obs_type": "ram", "repeat_action_probability": 0.0, "frame_skip": 2}
    env = make_vector_env(f"ALE/{game}-v5", 1, env_kwargs=options, render_mode="rgb_array")
    space: Any = env.action_space
    rng, action = np.random.default_rng(0), 0
    env.reset(1)
    ram, frames = [], []
    for t in range(unseen + n_steps):
        if t % 8 == 0:
            action = int(rng.integers(space.n))
        ram.append(env.step(np.array([action])).obs[0].copy())
        frames.append(env.render(0) if t >= unseen else None)
    env.close()
    return np.array(ram[unseen:]), np.array(frames[unseen:])


def pixels_of(colours: tuple[tuple[int, int, int], ...], frames: np.ndarray) -> np.ndarray:
    """bool [T, 210, 160]: has a pixel one of the colours, in this frame or the last one? Sprites
    flicker. What always has it is background."""
    codes = frames.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    wanted = [(r << 16) + (g << 8) + b for r, g, b in colours]
    found = np.any([codes == code for code in wanted], axis=0)
    found[1:] |= found[:-1].copy()
    return found & ~found.all(axis=0)


def is_seen(thing: Thing, seen: Seen, ram: np.ndarray, has_colour: np.ndarray) -> list[list[bool]]:
    """For each frame in which it is told to be on the screen: whether its colours are there,
    whether they are in a frame of another time, and whether they are beside it."""
    numbers = re.findall(r"\d+", thing.name)
    down = seen.lane * (int(numbers[0]) - 1) if numbers else 0
    found = []
    for t, row in enumerate(ram):
        if thing.shown_at is not None and row[thing.shown_at] & thing.mask == thing.hidden:
            continue
        place = []
        for axis, size in ((thing.y, 210), (thing.x, 160)):
            if axis is None:
                place.append(slice(seen.rows[0] + down, seen.rows[1] + down))
                continue
            pixel = axis.scale * ((int(row[axis.address]) + axis.shift) % 256) + axis.offset
            if not 12 < pixel < size - 12 or (axis is thing.y and not 25 < pixel < 190):
                break
            place.append(slice(round(pixel - seen.within), round(pixel + seen.within) + 1))
        else:
            rows, columns = place
            aside = slice(columns.start - 20, columns.stop - 20)
            if columns.start < 40:
                aside = slice(columns.start + 20, columns.stop + 20)
            other = has_colour[(t + 61) % len(ram)]
            looked = (
                has_colour[t, rows, columns],
                other[rows, columns],
                has_colour[t, rows, aside],
            )
            found.append([bool(part.any()) for part in looked])
    return found


@pytest.mark.parametrize("game", list(SEEN))
def test_what_is_told_is_on_the_screen(game: str) -> None:
    ram, frames = played(game, unseen=COME_LATE.get(game, 60))
    found: dict[str, list[list[bool]]] = {name: [] for name in SEEN[game]}
    places = {name: pixels_of(seen.colours, frames) for name, seen in SEEN[game].items()}
    for thing in OBJECTS[game]:
        if thing.name != "invaders" and (thing.x is not None or thing.y is not None):
            name = re.sub(r"(_\d+)+$", "", thing.name)
            found[name] += is_seen(thing, SEEN[game][name], ram, places[name])
    for name, looked in found.items():
        assert len(looked) > 20, name
        here, at_another_time, aside = np.mean(looked, axis=0)
        assert here >= SEEN[game][name].share, (name, here)
        assert min(at_another_time, aside) <= 0.7 * here, (name, here, at_another_time, aside)


def test_facts_are_seen() -> None:
    ram, frames = played("Asterix", 200)
    for t, lane in np.ndindex(200, 8):
        x = int(ram[t, 42 + lane]) + 3
        if ram[t, 18 - lane] != 11 and 12 < x < 148:
            item = frames[t, 27 + 16 * lane : 37 + 16 * lane, x - 4 : x + 5]
            is_enemy = (item == np.array((228, 111, 111), np.uint8)).all(axis=-1).any()
            assert is_enemy == ram[t, 29 + lane] & 1
    ram, frames = played("SpaceInvaders", 300)
    facts = [thing for thing in OBJECTS["SpaceInvaders"] if thing.x is None and thing.y is None]
    left = np.sum([ram[:, fact.shown_at] & fact.mask > 0 for fact in facts], axis=0)
    assert (left == ram[:, 17]).all()
    pixels = (frames == np.array((134, 134, 29), np.uint8)).all(axis=-1)
    assert np.corrcoef(left, pixels.sum(axis=(1, 2)))[0, 1] > 0.9
    # The upper left corner of the invaders; the reader tells the middle of the first one.
    corners = [(place[1].min(), place[0].min()) for place in map(np.nonzero, pixels)]
    told = np.stack([ram[:, 26] - 1.0, 31 + 2.0 * ram[:, 16]], axis=1)
    assert (np.array(corners) == told).all(axis=1).mean() > 0.9


@pytest.mark.parametrize("game", list(OBJECTS))
def test_any_memory_gives_numbers_of_the_space(game: str) -> None:
    reader, rng = ObjectReader(f"ALE/{game}-v5", 64), np.random.default_rng(0)
    assert len(set(reader.names)) == len(reader.names)
    for ram in (np.zeros((64, 128)), np.full((64, 128), 255), rng.integers(256, size=(64, 128))):
        obs = reader(ram.astype(np.uint8), np.zeros(64, bool))
        assert all(reader.space.contains(row) for row in obs)


def test_a_game_without_a_table_says_which_have_one() -> None:
    with pytest.raises(EnvError, match=r"Zaxxon-v5: .*ALE/Pong-v5.*ALE/Tennis-v5\. Use"):
        ObjectReader("ALE/Zaxxon-v5", 1)


@pytest.mark.parametrize("game", list(SPRITES))
def test_positions_are_where_the_sprites_are(game):
    env_id = f"ALE/{game}-v5"
    options = {"obs_type": "objects", "repeat_action_probability": 0.0, "frame_skip": 2}
    env = make_vector_env(env_id, 1, env_kwargs=options, render_mode="rgb_array")
    names = ObjectReader(env_id, 1).names
    space: Any = env.action_space
    n_actions = int(space.n)
    rng, obs, action = np.random.default_rng(0), env.reset(1)[0], 0
    errors: dict[str, list[float]] = {}
    for t in range(400):
        if t % 8 == 0:
            action = int(rng.integers(n_actions))
        obs = env.step(np.array([action])).obs[0]
        frame = env.render(0)
        assert frame is not None
        if t < 60:  # the sprites come in
            continue
        for thing, (colour, crop) in SPRITES[game].items():
            seen = centre(frame, colour, crop)
            is_there = f"{thing}_is_there"
            if is_there in names and not obs[names.index(is_there)]:
                continue
            for axis, half, pixel in zip("xy", (80, 105), seen or (), strict=False):
                if f"{thing}_{axis}" in names:
                    told = obs[names.index(f"{thing}_{axis}")] * half + half
                    errors.setdefault(f"{thing}_{axis}", []).append(abs(told - pixel))
    expected = {n for n in names if n[-2:] in ("_x", "_y") and not n.startswith("car_")}
    assert set(errors) == expected
    for name, gaps in errors.items():
        assert len(gaps) > 20, name
        assert np.quantile(gaps, 0.8) <= TOLERANCE.get(game, 1.0), (name, np.quantile(gaps, 0.8))


def test_the_cars_of_freeway_are_where_they_are_seen():
    env_id = "ALE/Freeway-v5"
    options = {"obs_type": "objects"}
    env = make_vector_env(env_id, 1, env_kwargs=options, render_mode="rgb_array")
    names = ObjectReader(env_id, 1).names
    env.reset(0)
    gaps = []
    for _ in range(60):
        obs = env.step(np.array([0])).obs[0]
        frame = env.render(0)
        assert frame is not None
        for lane in range(1, 11):
            top = 27 + 16 * (lane - 1)
            road = (frame[top : top + 8, 8:] != 142).any(axis=-1).sum(axis=0) > 2
            columns = np.flatnonzero(road) + 8
            if len(columns) and columns.min() > 20 and columns.max() < 150 and np.ptp(columns) < 12:
                told = obs[names.index(f"car_{lane}_x")] * 80 + 80
                gaps.append(abs(told - (columns.min() + columns.max()) / 2))
    assert len(gaps) > 200
    assert np.quantile(gaps, 0.9) <= 1.5


def test_velocities_are_changes_of_positions_and_nothing_where_an_object_jumps():
    reader = ObjectReader("ALE/Pong-v5", 3)
    ram = np.zeros((3, 128), np.uint8)
    ram[:, 51], ram[:, 49] = 100, 120
    ram[:, 54] = (90, 0, 90)  # the ball of row 1 is not there yet
    opened = np.ones(3, bool)
    first = reader(ram, opened)
    column = {name: i for i, name in enumerate(reader.names)}
    assert not first[:, column["ball_y_velocity"]].any()
    assert first[1, column["ball_y_from_player"]] == 0
    assert first[:, column["ball_is_there"]].tolist() == [1, 0, 1]
    assert first[1, column["ball_x"]] == first[1, column["ball_y"]] == 0
    ram[:, 49] = 124
    ram[:, 54] = (98, 98, 90 + JUMP + 1)
    ram[:, 51] = 92
    second = reader(ram, np.zeros(3, bool))
    assert second[:, column["player_y_velocity"]].tolist() == [-8 / UNIT] * 3
    assert second[:, column["ball_y_velocity"]].tolist() == [0.5, 0, 0]
    assert second[:, column["ball_x_velocity"]].tolist() == [0.25, 0, 0.25]
    gap = ((98 - 12.5) - (92 - 6)) / UNIT  # of the middles, in pixels
    told = second[:, column["ball_y_from_player"]]
    assert told.tolist() == [gap, gap, gap + (JUMP + 1 - 8) / UNIT]
    assert reader.space.contains(second[0])
    ram[:, 54] += 4
    assert not reader(ram, opened)[:, 4:8].any()  # new games


def test_the_observation_is_what_the_table_tells():
    for game in OBJECTS:
        env = make_vector_env(f"ALE/{game}-v5", 1, env_kwargs={"obs_type": "objects"})
        obs = env.reset(0)
        assert obs.dtype == np.float32
        assert env.observation_space.contains(obs[0])
        assert obs.shape[1] == len(ObjectReader(f"ALE/{game}-v5", 1).names)


def test_the_button_of_pong_speeds_the_ball_up():
    # So no config may forbid it: without it points are won much later.
    def returned(noop: int, up: int, down: int) -> float:
        env = make_vector_env("ALE/Pong-v5", 8, env_kwargs={"obs_type": "objects"})
        names = ObjectReader("ALE/Pong-v5", 1).names
        ball_from_player, ball_speed = map(names.index, ("ball_y_from_player", "ball_x_velocity"))
        obs, speeds = env.reset(seed=1), []
        for _ in range(400):
            apart = obs[:, ball_from_player]
            obs = env.step(np.where(apart > 0.3, down, np.where(apart < -0.3, up, noop))).obs
            speeds += obs[obs[:, ball_speed] < 0, ball_speed].tolist()
        env.close()
        return float(np.mean(speeds))

    labels = ["noop", "fire", "right", "left", "right_fire", "left_fire"]
    without = returned(*map(labels.index, ("noop", "right", "left")))
    assert returned(*map(labels.index, ("fire", "right_fire", "left_fire"))) < 1.5 * without < 0


def test_the_field_says_for_which_games_there_are_objects() -> None:
    text = field_docs(Config)["obs_type"]
    assert [game for game in OBJECTS if game not in text] == []
