"""Wrappers by name: the names of the references, plugins, the catalogue, a run's metrics."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.api import train
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper, registered
from gymnasium_solver.envs.wrappers.options import check_options, options_of, words_for
from gymnasium_solver.envs.wrappers.wrapping import wrap, wrapper_catalog, wrapper_class
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.plugins import import_plugins
from tests.envs.scripted import Scripted

# The ids and options of the reference's registry, with their defaults where it has one.
REFERENCE = {
    "DiscreteEncoder": ["encoding"],
    "DiscreteActionSpaceRemapperWrapper": ["mapping"],
    "ActionRewardShaper": ["rewards"],
    "StickyActionsWrapper": ["sticky_buttons"],
    "FrameSkipWrapper": ["skip"],
    "PixelObservationWrapper": ["pixels_only", "render_kwargs"],
    "ALEActionMaskingWrapper": [],
    "CartPoleV1_RewardShaper": ["angle_reward_scale", "position_reward_scale", "clip_potential"],
    "MountainCarV0_RewardShaper": [
        *("position_reward_scale", "velocity_reward_scale", "height_reward_scale"),
    ],
    "MountainCarV0_StateCountBonus": [
        *("position_bins", "velocity_bins", "bonus_scale", "bonus_type", "min_count"),
    ],
    "PongV5_FeatureExtractor": [
        *("clip", "playfield_y_min", "playfield_y_max", "margin_y", "action_ids"),
    ],
    "PongV5_RewardShaper": [
        *("paddle_hit_reward", "proximity_reward_scale", "direction_change_reward"),
    ],
    "BreakoutV5_FeatureExtractor": ["clip"],
    "VizDoom_RewardShaper": [
        *("noop_penalty", "move_reward", "turn_reward", "attack_penalty"),
        *("ammo_waste_penalty", "health_loss_penalty"),
    ],
    "RetroSuperMarioBros_RewardShaper": [
        *("reward_scale", "death_penalty", "level_complete_bonus", "step_penalty"),
        *("x_position_scale", "score_scale", "x_reset_threshold"),
    ],
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_names_of_the_reference_are_ours(name):
    options = list(options_of(wrapper_class(name)))
    assert options[: len(REFERENCE[name])] == REFERENCE[name]


def test_the_catalogue_has_every_wrapper_once():
    entries = wrapper_catalog()
    ids = [entry.id for entry in entries]
    assert len(ids) == len(set(ids))
    assert {*REFERENCE, "TimeLimit", "ObservationScale", "ActionRescale"} <= set(ids)
    by_id = {entry.id: entry for entry in entries}
    clip = by_id["RewardClip"]
    assert clip.about == "Clips rewards to [low, high]."
    assert clip.aliases == ("ClipReward",)
    assert [(o.name, o.takes, o.default) for o in clip.options] == [
        ("low", "a number", -1.0),
        ("high", "a number", 1.0),
    ]
    skip = by_id["FrameSkipWrapper"].options[0]
    assert (skip.takes, skip.is_required) == ("a whole number or a list of whole numbers", True)
    assert all(entry.about.endswith(".") for entry in entries if entry.is_shipped)


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "words"),
    [
        (float, [1, -2.5], [True, "1", float("nan"), float("inf"), None], "a number"),
        (int, [3], [3.0, True, "3"], "a whole number"),
        (bool, [True], [1, "true"], "true or false"),
        (float | None, [None, 1], ["x"], "a number or null"),
        (list[int], [[1, 2], (), []], [[1.5], 3, "12"], "a list of whole numbers"),
        (dict[str, float], [{"a": 1}], [{"a": "x"}, [1]], "a block of key: value lines"),
        (tuple[float, float], [[1, 2], (1, 2)], [[1], [1, "x"], 3], "a list"),
        (np.ndarray, [np.zeros(2)], [[1, 2]], "a ndarray"),
        (object, [1, "x", None], [], "any value"),
    ],
)
def test_options_by_annotation(annotation, good, bad, words):
    class Toy:
        def __init__(self, env, option): ...

    Toy.__init__.__annotations__["option"] = annotation
    for value in good:
        check_options("Toy", Toy, {"option": value})
    for value in bad:
        with pytest.raises(EnvError, match=re.escape(f"option must be {words}, got")):
            check_options("Toy", Toy, {"option": value})
    assert words_for(annotation) == words


def test_aliases_do_not_excuse_unknown_options():
    engine = Scripted(np.zeros((2, 1, 1), np.float32))
    with pytest.raises(EnvError, match="Wrapper RewardClip: unknown option 'maximum'"):
        wrap(engine, [{"id": "ClipReward", "maximum": 3}])
    engine = Scripted(np.zeros((2, 1, 1), np.float32))
    env = wrap(engine, [{"id": "ClipReward", "min_reward": -1, "max_reward": 0.5}])
    env.reset(0)
    assert env.step(np.array([0])).reward.tolist() == [0.5]


def test_a_failing_wrapper_closes_the_env(monkeypatch):
    engine = Scripted(np.zeros((2, 1, 1), np.float32))
    with pytest.raises(EnvError, match="Did you mean RewardScale"):
        wrap(engine, [{"id": "RewardClip"}, {"id": "RewardScal"}])
    assert engine._closed


PLUGIN = """
import numpy as np
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper

@register_wrapper("PluginShift")
class Shift(VectorWrapper):
    "Adds `by` to the reward."
    def __init__(self, env, by: float = 1.0):
        super().__init__(env)
        self._by = by
    def step(self, actions):
        step = self.env.step(actions)
        return step._replace(reward=np.where(step.is_reset, 0, step.reward + self._by))

@register_wrapper("PluginNoBatch")
class NoBatch: ...
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    Path("shift_plugin.py").write_text(PLUGIN, encoding="utf-8")
    yield "shift_plugin"
    sys.modules.pop("shift_plugin", None)
    registered.pop("PluginShift", None)
    registered.pop("PluginNoBatch", None)


def test_wrappers_of_a_plugin(plugin):
    import_plugins([plugin])
    import_plugins([plugin])  # a second time is nothing
    env = make_vector_env("CartPole-v1", 1, env_wrappers=[{"id": "PluginShift", "by": 2}])
    env.reset(0)
    assert env.step(np.array([0])).reward.tolist() == [3.0]
    with pytest.raises(EnvError, match="Wrapper PluginShift: by must be a number, got 'x'"):
        make_vector_env("CartPole-v1", 1, env_wrappers=[{"id": "PluginShift", "by": "x"}])
    with pytest.raises(EnvError, match=r"PluginNoBatch acts on a whole batch.*VectorWrapper"):
        make_vector_env("CartPole-v1", 1, env_wrappers=[{"id": "PluginNoBatch"}])
    by_id = {entry.id: entry for entry in wrapper_catalog()}
    assert by_id["PluginShift"].about == "Adds `by` to the reward."
    assert not by_id["PluginShift"].is_shipped
    assert "PluginNoBatch" not in by_id
    with pytest.raises(EnvError, match="'ClipReward' exists already"):
        register_wrapper("ClipReward")(type("Other", (VectorWrapper,), {}))
    with pytest.raises(ConfigError, match=r"plugins: cannot import 'no_plugin'.*without \.py"):
        import_plugins(["no_plugin"])


PART = "train/roll/ep_part/"


def last_row(folder: Path) -> dict[str, float]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[-1])
    return {name: row[name] for name in row if name.startswith("train/roll/")}


def test_the_parts_of_a_shaped_run_are_its_metrics(tmp_path):
    """Beside a score that stays raw; means over the episodes that ended."""
    settings: dict[str, Any] = {
        "n_envs": 4,
        "n_steps": 64,
        "batch_size": 64,
        "seed": 1,
        "eval_freq_epochs": None,
        "env_wrappers": [{"id": "CartPoleV1_RewardShaper", "position_reward_scale": 0.25}],
    }
    whole = train("CartPole-v1:ppo", runs_dir=tmp_path / "a", max_env_steps=1024, **settings)
    row = last_row(whole.path)
    # Every episode fell: the potential of its first observation, near 1 and 0.25, is taken back,
    # and with gamma a little more at each step.
    assert -1.25 < row[f"{PART}angle/mean"] < -0.7
    assert -0.36 < row[f"{PART}position/mean"] < -0.2
    assert row["train/roll/ep_rew/mean"] == row["train/roll/ep_len/mean"]
