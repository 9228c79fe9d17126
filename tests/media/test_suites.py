"""One environment of every suite is drawn, recorded and named, or the reason is told."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.media.labels import action_names
from gymnasium_solver.media.player import Player, RandomActor
from gymnasium_solver.media.record import Shots, record
from gymnasium_solver.media.stage import CannotDraw, open_stage
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.targets import Found

# target: (package, size of a frame, frames per second, names of the first actions)
SUITES: dict[str, tuple[str, tuple[int, int], float, list[str]]] = {
    "CartPole-v1:ppo": ("envpool", (600, 400), 50, ["push_left", "push_right"]),
    "FrozenLake-v1:ppo": ("pygame", (256, 256), 4, ["left", "down"]),
    "LunarLander-v3:ppo": ("envpool", (600, 400), 50, ["nothing"]),
    "HalfCheetah-v5:ppo": ("envpool", (480, 480), 20, []),
    "ALE/Pong-v5:ppo": ("envpool", (160, 210), 15, ["noop", "fire"]),
    "ALE/Freeway-v5": ("ale_py", (160, 210), 15, ["noop", "up", "down"]),
    "VizDoom-Basic-v0:ppo": ("vizdoom", (480, 360), 9, ["nothing", "move_left"]),
    "Retro/Airstriker-Genesis:ppo": ("stable_retro", (320, 224), 15, ["nothing", "left"]),
    "MiniGrid-Empty-5x5-v0:ppo": ("envpool", (160, 160), 10, ["left", "right"]),
}


@pytest.mark.parametrize("target", SUITES)
def test_every_suite_is_drawn(target: str, tmp_path: Path) -> None:
    package, size, fps, names = SUITES[target]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    config = load_config(target)
    spec: dict[str, Any] = {} if target.startswith("ALE/Freeway") else config.spec
    try:
        stage = open_stage(Found(config.replace(spec=spec)))
    except CannotDraw as error:
        if "GL" in str(error):
            pytest.skip(str(error))
        raise
    try:
        assert stage.fps == fps
        assert action_names(stage)[: len(names)] == names
        shots = Shots(most_steps=2, overlay=False)
        result = record(
            Player(stage, RandomActor(stage.env.action_space), 1), tmp_path / "a.gif", shots, 2
        )
        assert result.width % size[0] == 0
        assert result.height * size[0] == result.width * size[1]
        assert result.lengths == [2]
    finally:
        stage.close()
