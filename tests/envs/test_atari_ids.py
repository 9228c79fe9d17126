"""Old ids of Atari games: understood, with a note that says what scores compare with."""

from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.game_options import ATARI_GAMES, modern
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.prepare import build_config, load_config


def test_the_games_are_envpools() -> None:
    import envpool

    specs = envpool.registration.registry.specs
    games = {name.removesuffix("-v5") for name, (path, *_) in specs.items() if path[-5:] == "atari"}
    assert games == ATARI_GAMES


@pytest.mark.parametrize(
    ("old", "new", "sticky", "words"),
    [
        ("PongNoFrameskip-v4", "ALE/Pong-v5", 0.0, "scores compare with theirs, not with those of"),
        ("BreakoutNoFrameskip-v4", "ALE/Breakout-v5", 0.0, "held for 4 frames"),
        ("PongNoFrameskip-v0", "ALE/Pong-v5", 0.25, r"sticky actions \(0.25\)"),
        ("PongDeterministic-v4", "ALE/Pong-v5", 0.0, "as it was: scores compare"),
        ("Pong-v4", "ALE/Pong-v5", 0.0, "random 2 to 4: scores compare roughly"),
        ("Pong-v0", "ALE/Pong-v5", 0.25, "random 2 to 4"),
        ("Pong-v5", "ALE/Pong-v5", 0.0, "not EnvPool's own"),
        ("TicTacToe3dNoFrameskip-v4", "ALE/TicTacToe3D-v5", 0.0, "no sticky"),
    ],
)
def test_what_an_old_id_is(old: str, new: str, sticky: float, words: str) -> None:
    import re

    found = modern(old)
    assert found is not None
    assert (found.env_id, found.options) == (new, {"repeat_action_probability": sticky})
    assert found.note.startswith(f"{old} is {new} here")
    assert re.search(words, found.note)


@pytest.mark.parametrize(
    "other",
    [
        "ALE/Pong-v5",
        "CartPole-v0",
        "Ant-v4",
        "Ant-v5",
        "Blackjack-v0",
        "PongNoFrameskip-v5",
        "Pong",
    ],
)
def test_other_ids_are_left_alone(other: str) -> None:
    assert modern(other) is None


def test_the_environment() -> None:
    env = make_vector_env("PongNoFrameskip-v4", 1)
    assert env.spec.env_id == "ALE/Pong-v5"
    protocol = env.spec.protocol
    assert (protocol["repeat_action_probability"], protocol["frame_skip"]) == (0.0, 4)
    assert env.observation_space.shape == (4, 84, 84)
    assert any("PongNoFrameskip-v4 is ALE/Pong-v5 here" in note for note in env.spec.notes)
    env.close()
    options: dict[str, Any] = {"repeat_action_probability": 0.1}
    env = make_vector_env("Pong-ram-v4", 1, env_kwargs=options)
    assert env.spec.protocol["repeat_action_probability"] == 0.1
    assert env.observation_space.shape == (128,)
    env.close()


def test_configs() -> None:
    config = load_config("PongNoFrameskip-v4:ppo")
    same = load_config("ALE/Pong-v5:ppo", overrides={"env_kwargs.repeat_action_probability": 0})
    assert dict(config) == dict(same)
    assert any("PongNoFrameskip-v4 is ALE/Pong-v5 here" in line for line in config.notices())
    assert any("ALE/Pong-v5:ppo_v4" in line for line in config.notices())
    assert config.replace(seed=3).notices() == config.notices()
    assert same.notices() == load_config("ALE/Pong-v5:ppo").notices()
    given = {"env_kwargs.repeat_action_probability": 0.1, "n_envs": 2}
    changed = load_config("PongNoFrameskip-v4:ppo", overrides=given)
    assert changed.env_kwargs["repeat_action_probability"] == 0.1
    assert changed.n_envs == 2
    objects = load_config("PongNoFrameskip-v4", "ppo_objects")
    other = load_config(
        "ALE/Pong-v5", "ppo_objects", overrides={"env_kwargs.repeat_action_probability": 0}
    )
    assert dict(objects) == dict(other)


def test_configs_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("env_id: BreakoutNoFrameskip-v4\nalgo_id: ppo\nenv_kwargs: {noop_max: 5}\n")
    config = load_config(str(path))
    assert config.env_id == "ALE/Breakout-v5"
    assert config.env_kwargs["noop_max"] == 5
    assert config.env_kwargs["repeat_action_probability"] == 0
    ram = build_config({"env_id": "Breakout-ram-v4", "algo_id": "ppo"})
    assert getattr(ram, "obs_type") == "ram"  # noqa: B009


def test_a_game_without_a_config() -> None:
    config = load_config("ZaxxonNoFrameskip-v4:ppo")
    assert config.env_id == "ALE/Zaxxon-v5"
    assert config.env_kwargs["repeat_action_probability"] == 0


def test_the_note_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "PongNoFrameskip-v4:ppo"]) == 0
    out, err = capsys.readouterr()
    assert "PongNoFrameskip-v4 is ALE/Pong-v5 here" in err
    assert "env_id: ALE/Pong-v5" in out


def test_a_game_that_does_not_exist() -> None:
    with pytest.raises(EnvError, match=r"Unknown environment 'PangNoFrameskip-v4'.*ALE/Pong-v5"):
        make_vector_env("PangNoFrameskip-v4", 1)
