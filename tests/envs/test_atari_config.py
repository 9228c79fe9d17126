"""Atari's options in configs: resolved where they are read, told next to the scores of a run; and
old ids, understood, with a note that says what scores compare with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.sheet import spec_mismatches
from gymnasium_solver.envs.suites.game_options import ATARI_GAMES, modern
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.training.loop import resume, train
from gymnasium_solver.training.prepare import build_config, load_config

CONFIGS = Path(__file__).parents[2] / "gymnasium_solver" / "configs" / "atari"
GAMES = sorted(path.stem.removeprefix("ALE-") for path in CONFIGS.glob("*.yaml"))


def test_a_config_tells_every_option():
    config = load_config("ALE/Breakout-v5:ppo")
    assert (config.obs_type, config.frame_stack, config.frame_skip) == ("rgb", 4, 4)
    assert (config.grayscale_obs, config.resize_obs) == (True, (84, 84))
    assert config.env_kwargs == {
        "max_pool": True,
        "repeat_action_probability": 0.25,
        "noop_max": 30,
        "fire_reset": True,
        "episodic_life": True,
        "reward_clip": True,
        "max_frames": 108_000,
        "full_action_space": False,
        "mode": None,
        "difficulty": None,
    }


def test_overrides_reach_the_game():
    overrides = {"obs_type": "ram", "frame_stack": 2, "env_kwargs.full_action_space": True}
    config = load_config("ALE/Breakout-v5:ppo", overrides=overrides)
    assert (config.grayscale_obs, config.resize_obs) == (None, None)
    env = env_from_config(config, 1)
    assert env.observation_space.shape == (256,)
    assert "Discrete(18)" in str(env.action_space)
    assert env.spec.protocol["full_action_space"] is True


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"env_kwargs.sticky_actions": True}, "Did you mean repeat_action_probability"),
        ({"env_kwargs.noop_max": "many"}, "noop_max is 'many'"),
        ({"obs_type": "ram", "resize_obs": [64, 64]}, "resize_obs is for obs_type rgb, not ram"),
        ({"frame_stack": 2, "env_kwargs.frame_stack": 4}, "frame_stack is given twice"),
        ({"frame_stack": 0}, "frame_stack is 0, expected a whole number >= 1"),
        ({"obs_type": "pixels"}, "expected one of 'rgb', 'ram', 'objects'"),
    ],
)
def test_bad_options_are_told_when_a_config_is_read(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config("ALE/Breakout-v5:ppo", overrides=overrides)


def test_other_suites_keep_their_fields():
    config = load_config("CartPole-v1:ppo")
    assert config.obs_type is config.frame_stack is config.resize_obs is None
    assert config.env_kwargs == {}


@pytest.mark.sample(5)
@pytest.mark.parametrize("game", GAMES)
def test_shipped_specs_tell_the_truth(game):
    config = load_config(f"ALE/{game}:ppo")
    spec = read_spec(config.spec)
    seen = spec.observation_space.variants
    config = config.replace(obs_type="objects" if "objects" in seen else "ram", frame_stack=1)
    config = config.replace(grayscale_obs=None, resize_obs=None)
    env = env_from_config(config, 1)
    assert spec_mismatches(spec, env, config.obs_type) == []


def test_twelve_games_are_shipped():
    assert len(GAMES) >= 12


SMALL = {
    "n_envs": 2,
    "n_steps": 40,
    "max_epochs": 2,
    "max_episode_steps": 60,
    "eval_freq_epochs": 2,
    "eval_episodes": 1,
    "seed": 1,
}


def test_the_protocol_stands_beside_the_scores_of_a_run(tmp_path):
    config = load_config("ALE/Pong-v5:ppo_objects", overrides=SMALL | {"test_episodes": 1})
    run = train(config, runs_root=tmp_path)
    protocol = run.meta()["protocol"]
    assert protocol["obs_type"] == "objects"
    assert protocol["repeat_action_probability"] == 0.25
    scored = [event for event in read_jsonl(run.events_path) if event["kind"] == "eval"]
    assert {event["stage"] for event in scored} == {"val", "test"}
    assert all(event["protocol"] == protocol for event in scored)
    assert "repeat_action_probability 0.25" in run.report_path.read_text()
    assert json.loads(json.dumps(config_dict(config)))["obs_type"] == "objects"


def test_resume_is_exact_amid_lives(tmp_path):
    """Sticky actions, lives, FIRE: two epochs and two more give the weights of four."""
    small = SMALL | {"max_episode_steps": None, "eval_freq_epochs": 0, "checkpoint_freq_epochs": 1}
    overrides: dict[str, Any] = {
        **small,
        "obs_type": "objects",
        "policy": "mlp",
        "max_env_steps": None,
        "policy_lr": 0.001,  # the same for any budget
    }
    weights = []
    for budgets in ((4,), (2, 4)):
        config = load_config(
            "ALE/Breakout-v5:ppo", overrides=overrides | {"max_epochs": budgets[0]}
        )
        run = train(config, runs_root=tmp_path)
        if len(budgets) > 1:
            resume(run.id, runs_root=tmp_path, overrides={"max_epochs": budgets[1]})
        last = run.checkpoints_dir / "last"
        weights.append({p.name: p.read_bytes() for p in last.resolve().glob("model*")})
    assert weights[0]
    assert weights[0] == weights[1]


# -- old ids --------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("obs_type", ["ram", "objects"])
def test_what_is_no_screen_needs_no_cnn(obs_type: str) -> None:
    config: Any = load_config("ALE/Pong-v5:ppo", overrides={"obs_type": obs_type})
    assert config.policy == "auto"  # an MLP, by the space
    kept: Any = load_config("ALE/Pong-v5:ppo", overrides={"obs_type": obs_type, "policy": "cnn"})
    assert kept.policy == "cnn", "as it was given"
