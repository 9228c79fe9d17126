"""Every suite under the contract, where its package is here; else a skip with the reason."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete, MultiBinary

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.envs.journal import same_obs
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.spaces.observations import map_obs, obs_arrays, part_spaces, take_rows
from gymnasium_solver.training.prepare import build_config, load_config

# id, env_kwargs, observation shape (of each part), engine. The limit of 12 steps makes episodes
# end often.
SUITES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("VizDoom-Basic-v0", {}, (4, 84, 84), "vizdoom"),
    (
        "VizDoom-DefendTheCenter-v0",
        {"grayscale_obs": False, "frame_stack": 2, "resize_obs": [30, 40], "actions": "combined"},
        (6, 30, 40),
        "vizdoom",
    ),
    ("Retro/Airstriker-Genesis", {}, (4, 84, 84), "retro"),
    ("MiniGrid-Empty-5x5-v0", {}, (1078,), "envpool"),
    ("MiniGrid-DoorKey-5x5-v0", {"observation": "image"}, (7, 7, 3), "envpool"),
    ("CartpoleSwingup-v1", {}, {"position": (3,), "velocity": (2,)}, "envpool"),
    ("WalkerWalk-v1", {}, {"orientations": (14,), "height": (), "velocity": (9,)}, "envpool"),
    (
        "FetchReach-v4",
        {},
        {"observation": (10,), "achieved_goal": (3,), "desired_goal": (3,)},
        "envpool",
    ),
    ("PandaPickCube-v1", {}, (66,), "envpool"),
    ("FrankaKitchen-v1", {"tasks_to_complete": ["kettle"]}, None, "envpool"),
    (
        "MiniGrid-DoorKey-5x5-v0",
        {"observation": "dict"},
        {"direction": (), "image": (7, 7, 3), "mission": (45,)},
        "envpool",
    ),
    ("CoinrunEasy-v0", {}, (3, 64, 64), "envpool"),
    ("Blackjack-v1", {}, {"0": (), "1": (), "2": ()}, "sync"),
    ("CliffWalking-v1", {}, (), "envpool"),
    ("FrozenLake8x8-v1", {}, (), "envpool"),
    ("CarRacing-v3", {}, (96, 96, 3), "envpool"),
    ("BipedalWalkerHardcore-v3", {}, (24,), "envpool"),
    ("Bandit/Deceptive", {}, (1,), "own"),
    ("Brax/fast", {}, (2,), "jax"),
    ("Gymnax/CartPole-v1", {}, (4,), "jax"),
]


def made(env_id: str, n_envs: int = 3, **kwargs: Any) -> VectorEnv:
    """The env, or a skip where the machine lacks what it needs."""
    try:
        return make_vector_env(env_id, n_envs, **kwargs)
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("env_id", "env_kwargs", "shape", "engine"), SUITES)
def test_contract(env_id, env_kwargs, shape, engine, record):
    env = made(env_id, env_kwargs=env_kwargs, max_episode_steps=12)
    first = record(env, seed=1, n_steps=40)
    assert env.spec.engine == engine
    parts = part_spaces(env.observation_space)
    if shape is not None:
        expected = shape if isinstance(shape, dict) else {"": shape}
        assert {name: part.shape for name, part in parts.items()} == expected
    kept = [[map_obs(np.array, part) for part in step[:7]] for step in first.steps]
    for step in first.steps:
        for name, array in obs_arrays(step.obs):
            assert array.shape == (3, *(parts[name].shape or ()))
            assert array.dtype == parts[name].dtype
            assert array.flags.c_contiguous
        assert env.observation_space.contains(take_rows(step.obs, 0))
        assert step.reward.dtype == np.float32
    assert first.done.sum() >= 6
    assert (first.lengths <= 12).all()
    assert first.truncated[first.lengths == 12].all()
    assert not first.truncated[first.lengths < 12].any()
    assert np.array_equal(first.is_reset[1:], first.done[:-1])
    assert (first.reward[first.is_reset] == 0).all()
    assert not first.done[first.is_reset].any()
    # The action of a reset row is ignored, and the same seed and actions give the same again.
    changed = [np.where(_as(r, a), a[::-1], a) for a, r in zip(first.actions, first.is_reset,
                                                                strict=True)]  # fmt: skip
    assert first.same_as(record(env, seed=1, n_steps=40, actions=changed))
    for step, copies in zip(first.steps, kept, strict=True):  # what was handed out is as it was
        assert all(same_obs(a, b) for a, b in zip(step[:7], copies, strict=True))


def _as(rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, *[1] * (actions.ndim - 1))


def test_vizdoom_takes_the_same_pixels_from_the_engine_drawn_or_not():
    """The engine's own gray rounds differently on some machines: there must be one source only."""
    formats = []
    for render_mode in (None, "rgb_array"):
        env: Any = made("VizDoom-Basic-v0", 1, render_mode=render_mode)
        formats.append(env._new_game("VizDoom-Basic-v0").get_screen_format().name)
    assert formats == ["CRCGCB", "CRCGCB"]


@pytest.mark.parametrize("env_id", ["VizDoom-Basic-v0", "Retro/Airstriker-Genesis"])
def test_the_protocol_of_a_game_is_recorded(env_id):
    config = load_config(f"{env_id}:ppo")
    assert (config.frame_stack, config.frame_skip, config.grayscale_obs) == (4, 4, True)
    assert config.resize_obs == (84, 84)
    assert build_config(config_dict(config)) == config
    unresized = load_config(f"{env_id}:ppo", overrides={"resize_obs": False, "frame_stack": 2})
    assert (unresized.resize_obs, unresized.frame_stack) == (False, 2)
    assert random_baseline(env_id, game_settings(config_dict(config))) is not None
    env = made(env_id, 1, env_kwargs={"frame_skip": 2})
    assert env.spec.protocol == {
        "frame_skip": 2,
        "frame_stack": 4,
        "grayscale_obs": True,
        "resize_obs": [84, 84],
        "actions": "single",
    }


def test_vizdoom_frames_are_drawn_in_colour_while_the_agent_sees_gray(record):
    plain, drawn = made("VizDoom-Basic-v0", 1), made("VizDoom-Basic-v0", 1, render_mode="rgb_array")
    assert record(plain, seed=3, n_steps=30).same_as(record(drawn, seed=3, n_steps=30))
    frame = drawn.render()
    assert frame is not None
    assert (frame.shape, frame.dtype) == ((360, 480, 3), np.uint8)
    assert (frame[..., 0] != frame[..., 2]).any()
    assert not list(Path.cwd().glob("_vizdoom*"))  # games litter the folder they start in


def test_vizdoom_screen_and_game_variables():
    env = made("VizDoom-Basic-v0", 2, env_kwargs={"pixels_only": False, "actions": "buttons"})
    assert env.action_space == MultiBinary(3)
    assert list(env.observation_space.spaces) == ["screen", "variables"]  # type: ignore[attr-defined]
    env.reset(1)
    for _ in range(5):
        step = env.step(np.array([[0, 0, 1], [1, 0, 0]]))
    assert step.obs["screen"].shape == (2, 4, 84, 84)
    assert np.array_equal(step.obs["variables"][:, 0], step.info["AMMO2"])
    assert step.obs["variables"][0] < step.obs["variables"][1]  # the first shoots
    env = made("VizDoom-Basic-v0", 1, env_kwargs={"variables": ["HEALTH", "AMMO2"]})
    assert env.reset(1)["variables"].tolist() == [[100.0, 50.0]]


def test_vizdoom_pays_what_the_scenario_pays(record):
    """EnvPool's Basic pays 1 for the monster, the scenario 106 - 5 a shot - 1 a tic."""
    env = made("VizDoom-Basic-v0", 4)
    rollout = record(env, seed=1, n_steps=90)
    shots = rollout.terminated
    assert shots.any()
    assert (rollout.reward[shots] > 90).all()
    running = ~rollout.done & ~rollout.is_reset
    assert set(np.unique(rollout.reward[running])) <= {-4.0, -9.0}
    assert (rollout.returns[rollout.lengths == 75] <= -300).all()


def test_vizdoom_takes_scenarios_of_the_users_own(tmp_path, monkeypatch, record):
    vizdoom = pytest.importorskip("vizdoom")
    shipped = Path(vizdoom.scenarios_path)
    shutil.copy(shipped / "basic.cfg", tmp_path / "my_room.cfg")
    shutil.copy(shipped / "basic.wad", tmp_path)
    given = {"env_kwargs": {"config_path": str(tmp_path / "my_room.cfg")}}
    env = made("VizDoom-Custom-v0", 1, **given)
    first = record(env, seed=1, n_steps=5)
    env.close()
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path))
    env = made("VizDoom-MyRoom-v0", 1)
    assert first.same_as(record(env, seed=1, n_steps=5))
    env.close()
    settings = {"episode_timeout": 40, "living_reward": -2}
    env = made("VizDoom-MyRoom-v0", 1, env_kwargs={"settings": settings, "frame_skip": 2})
    assert env.spec.max_episode_steps == 20
    env.reset(0)
    assert env.step(np.array([0])).reward == -4


@pytest.mark.parametrize(
    ("env_id", "env_kwargs", "message"),
    [
        ("VizDoom-Nope-v0", {}, "no scenario 'Nope'.*config_path"),
        ("VizDoom-Basic-v0", {"config_path": "no.cfg"}, "no file no.cfg"),
        ("VizDoom-Basic-v0", {"settings": {"living_rewad": 1}}, "refuses"),
        ("VizDoom-Basic-v0", {"actions": ["LEFT"]}, "Did you mean MOVE_LEFT"),
        ("VizDoom-Basic-v0", {"actions": "both"}, "single, combined, buttons"),
        ("VizDoom-Basic-v0", {"frame_skip": 0}, "frame_skip is 0, expected a whole number >= 1"),
        (
            "VizDoom-Basic-v0",
            {"resize_obs": "big"},
            r"resize_obs is .*expected \[height, width\], true",
        ),
        ("VizDoom-Basic-v0", {"skill": 1}, "unknown env_kwargs key 'skill'"),
        ("VizDoom-Deathmatch-v0", {"actions": "combined"}, "List those that make sense"),
        ("Retro/Airstriker-Genesi", {}, "Did you mean Retro/Airstriker-Genesis-v0"),
        ("Retro/Airstriker-Genesis", {"state": "Level9"}, "There are: Level1"),
        ("MiniGrid-Empty-5x5-v0", {"observation": "text"}, "must be onehot, image, dict"),
        ("Bandit/Nope", {}, "Bandit/TwoArms"),
        ("Gymnax/Nope-v0", {}, "Gymnax/"),
        ("Brax/nope", {}, "Brax/ant"),
    ],
)
def test_mistakes_are_explained(env_id, env_kwargs, message):
    with pytest.raises(EnvError) as told:
        make_vector_env(env_id, 1, env_kwargs=env_kwargs)
    if isinstance(told.value, MissingError):
        pytest.skip(str(told.value))
    assert re.search(message, str(told.value))


def test_named_bandits_take_other_arms() -> None:
    env = make_vector_env("Bandit/Close", 2)
    assert env.action_space == Discrete(3)
    assert env.spec.reward_threshold == pytest.approx(52.5)
    env = make_vector_env("Bandit/Close", 2, env_kwargs={"stds": 0.0, "episode_length": 4})
    assert env.action_space == Discrete(3)
    env = make_vector_env("Bandit/Close", 2, env_kwargs={"n_arms": 5})
    assert env.action_space == Discrete(5)
