"""Atari's options in configs: resolved where they are read, told beside the scores of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.envs.checks.spec_block import missing_parts, spec_mismatches
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.training.loop import resume, train
from gymnasium_solver.training.prepare import load_config

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
    env.close()


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


@pytest.mark.parametrize("game", GAMES)
def test_shipped_specs_tell_the_truth(game):
    config = load_config(f"ALE/{game}:ppo")
    spec = read_spec(config.spec)
    assert not missing_parts(spec)
    seen = spec.observation_space.variants
    config = config.replace(obs_type="objects" if "objects" in seen else "ram", frame_stack=1)
    config = config.replace(grayscale_obs=None, resize_obs=None)
    env = env_from_config(config, 1)
    assert spec_mismatches(spec, env, config.obs_type) == []
    env.close()


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
