"""Wrappers: the names of the references, plugins, the catalogue, a run's metrics; what they change,
what they leave alone, and what they refuse."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.api import train
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper, registered, wrapper_names
from gymnasium_solver.envs.wrappers.options import options_of, words_for
from gymnasium_solver.envs.wrappers.wrapping import Named, wrap, wrapper_catalog, wrapper_class
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
        *("position_reward_scale", "velocity_reward_scale", "height_reward_scale")
    ],
    "MountainCarV0_StateCountBonus": [
        *("position_bins", "velocity_bins", "bonus_scale", "bonus_type", "min_count")
    ],
    "PongV5_FeatureExtractor": [
        *("clip", "playfield_y_min", "playfield_y_max", "margin_y", "action_ids")
    ],
    "PongV5_RewardShaper": [
        *("paddle_hit_reward", "proximity_reward_scale", "direction_change_reward")
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
    assert set(ids) <= set(wrapper_names())
    assert wrapper_names() == sorted(wrapper_names())
    by_id = {entry.id: entry for entry in entries}
    clip = by_id["RewardClip"]
    assert clip.about == "Clips rewards to [low, high]."
    assert clip.aliases == ("ClipReward",)
    assert [(o.name, words_for(o.annotation), o.default) for o in clip.options] == [
        ("low", "a number", -1.0),
        ("high", "a number", 1.0),
    ]
    skip = by_id["FrameSkipWrapper"].options[0]
    assert words_for(skip.annotation) == "a whole number or a list of whole numbers"
    assert skip.default is skip.empty
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
        Named("Toy", Toy, {"option": value}).options()
    for value in bad:
        with pytest.raises(EnvError, match=re.escape(f"option must be {words}, got")):
            Named("Toy", Toy, {"option": value}).options()
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


# -- what they change -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "width", "of_14"),
    [("array", 1, [14]), ("binary", 4, [1, 1, 1, 0]), ("onehot", 16, [0] * 14 + [1, 0])],
)
def test_discrete_encoder(encoding, width, of_14, record):
    plain = make_vector_env("FrozenLake-v1", 8)
    wrappers = [{"id": "DiscreteEncoder", "encoding": encoding}]
    env = make_vector_env("FrozenLake-v1", 8, env_wrappers=wrappers)
    assert env.observation_space.shape == (width,)
    assert env.observation_space.dtype == np.float32
    raw, encoded = record(plain, 0, 200), record(env, 0, 200)
    assert encoded.obs.dtype == np.float32
    assert encoded.obs.shape == (200, 8, width)
    assert all(env.observation_space.contains(obs) for obs in encoded.next_obs.reshape(-1, width))
    assert (encoded.obs[raw.obs == 14] == of_14).all()
    assert (raw.obs == 14).any()
    values = np.unique(raw.obs)
    assert len(np.unique(encoded.obs.reshape(-1, width), axis=0)) == len(values)
    assert np.array_equal(raw.reward, encoded.reward)


def test_discrete_encoder_refuses_what_it_cannot_encode():
    with pytest.raises(EnvError, match="needs Discrete observations; CartPole-v1 has Box"):
        make_vector_env("CartPole-v1", 2, env_wrappers=[{"id": "DiscreteEncoder"}])
    wrappers = [{"id": "DiscreteEncoder", "encoding": "hex"}]
    with pytest.raises(EnvError, match="one of 'array', 'binary', 'onehot', got 'hex'"):
        make_vector_env("FrozenLake-v1", 2, env_wrappers=wrappers)


def test_reward_scale_leaves_the_score_alone(record):
    wrappers = [{"id": "RewardScale", "scale": 0.1}]
    env = make_vector_env("CartPole-v1", 4, env_wrappers=wrappers)
    rollout = record(env, 0, 100)
    assert rollout.reward.dtype == np.float32
    np.testing.assert_allclose(rollout.reward, np.where(rollout.is_reset, 0, 0.1), rtol=1e-6)
    assert np.array_equal(rollout.returns, rollout.lengths)


def test_reward_clip_keeps_reset_rows_at_zero(record):
    wrappers = [{"id": "RewardClip", "low": 2, "high": 3}]
    rollout = record(make_vector_env("CartPole-v1", 4, env_wrappers=wrappers), 0, 100)
    assert rollout.is_reset.any()
    assert np.array_equal(rollout.reward, np.where(rollout.is_reset, 0, 2).astype(np.float32))
    assert np.array_equal(rollout.returns, rollout.lengths)


def test_wrappers_nest_innermost_first(record):
    scale, clip = {"id": "RewardScale", "scale": 10}, {"id": "RewardClip", "low": 0, "high": 4}
    for wrappers, expected in (([scale, clip], 4.0), ([clip, scale], 10.0)):
        env = make_vector_env("CartPole-v1", 2, env_wrappers=wrappers)
        assert record(env, 0, 3).reward.tolist() == [[expected] * 2] * 3


def test_time_limit_is_lowered_into_the_engine(record):
    for given, override, holds in ((9, None, 9), (9, 5, 5), (5, 9, 5)):
        env = make_vector_env(
            "CartPole-v1",
            4,
            env_wrappers=[{"id": "TimeLimit", "max_episode_steps": given}],
            max_episode_steps=override,
        )
        assert env.spec.max_episode_steps == holds
        assert record(env, 0, 60).lengths.max() == holds


def test_cartpole_shaper_is_a_potential_and_never_crosses_a_reset(record):
    wrappers = [{"id": "CartPoleV1_RewardShaper", "angle_reward_scale": 2.0}]
    kwargs: dict[str, Any] = {"max_episode_steps": 15, "vectorization_mode": "envpool"}
    plain = record(make_vector_env("CartPole-v1", 8, **kwargs), 0, 150)
    shaped = record(make_vector_env("CartPole-v1", 8, env_wrappers=wrappers, **kwargs), 0, 150)
    assert np.array_equal(plain.next_obs, shaped.next_obs)
    assert np.array_equal(plain.returns, shaped.returns)  # the score is the raw one
    assert (shaped.reward[shaped.is_reset] == 0).all()

    def potential(obs: np.ndarray) -> np.ndarray:
        upright = np.maximum(1 - np.abs(obs[..., 2]) / np.deg2rad(12), 0)
        return 2.0 * upright + 0.25 * np.maximum(1 - np.abs(obs[..., 0]) / 2.4, 0)

    after = np.where(shaped.terminated, 0, potential(shaped.next_obs))
    expected = np.where(shaped.is_reset, 0, 0.99 * after - potential(shaped.obs))
    np.testing.assert_allclose(shaped.reward - plain.reward, expected, atol=1e-5)
    added = np.stack([step.info["shaping_reward"] for step in shaped.steps])
    np.testing.assert_allclose(added, expected, atol=1e-5)
    assert shaped.terminated.any()
    assert (shaped.truncated & ~shaped.terminated).any()


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ({"id": "RewardScales"}, "Unknown env wrapper 'RewardScales'. Did you mean RewardScale"),
        ({"id": "Zzz"}, "Unknown env wrapper 'Zzz'. Known: .*DiscreteEncoder"),
        ({"scale": 1}, "Unknown env wrapper None"),
        ({"id": "RewardScale"}, "missing a required argument: 'scale'. It takes: scale"),
        ({"id": "RewardClip", "min": 1}, "unknown option 'min'. It takes: low, high"),
        ({"id": "RewardScale", "scal": 1}, "unknown option 'scal'. Did you mean scale"),
        ({"id": "RewardScale", "scale": "big"}, "scale must be a number, got 'big'"),
        ({"id": "RewardScale", "scale": float("nan")}, "scale must be a number, got nan"),
        ({"id": "RewardClip", "low": 2, "high": 1}, "low 2 is above high 1"),
        ({"id": "TimeLimit"}, "TimeLimit: missing a required argument: 'max_episode_steps'"),
        ({"id": "TimeLimit", "steps": 3}, "TimeLimit: unknown option 'steps'"),
        ({"id": "TimeLimit", "max_episode_steps": "9"}, "must be a whole number, got '9'"),
    ],
)
def test_bad_wrappers_are_explained(wrapper, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env("CartPole-v1", 2, env_wrappers=[wrapper])


def test_a_wrapper_of_ones_own(record):
    @register_wrapper("TestHalfReward")
    class HalfReward(VectorWrapper):
        def step(self, actions):
            step = self.env.step(actions)
            return step._replace(reward=step.reward / 2)

    assert "TestHalfReward" in wrapper_names()
    env = make_vector_env("CartPole-v1", 2, env_wrappers=[{"id": "TestHalfReward"}])
    assert record(env, 0, 2).reward.tolist() == [[0.5, 0.5]] * 2
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    for taken in ("RewardScale", "TimeLimit", "TestHalfReward"):
        with pytest.raises(EnvError, match="exists already"):
            register_wrapper(taken)(type("Other", (VectorWrapper,), {}))
