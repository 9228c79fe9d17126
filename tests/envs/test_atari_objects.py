"""Objects read from RAM, held against the pixels of the sprites on the screen."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.config.field_docs import field_docs
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.atari import JUMP, OBJECTS, UNIT, ObjectReader

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
