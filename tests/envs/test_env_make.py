"""Which engine an id gets, what its spaces and facts are, and what is refused."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.spec import suite_of
from gymnasium_solver.errors import EnvError

GYMNASIUM_MAKES = [
    *("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    *("FrozenLake-v1", "CliffWalking-v1", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"),
    *("Humanoid-v5", "Swimmer-v5", "Reacher-v5", "InvertedPendulum-v5"),
    "InvertedDoublePendulum-v5",
]


@pytest.mark.parametrize("env_id", GYMNASIUM_MAKES)
@pytest.mark.usefixtures("gymnasium_mujoco")
def test_envpool_and_gymnasium_agree_on_spaces_and_facts(env_id):
    pool = make_vector_env(env_id, 1, vectorization_mode="envpool")
    sync = make_vector_env(env_id, 1, vectorization_mode="sync")
    assert pool.observation_space == sync.observation_space
    assert pool.action_space == sync.action_space
    assert pool.reset(0).dtype == sync.reset(0).dtype == pool.observation_space.dtype
    for fact in ("env_id", "max_episode_steps", "reward_threshold", "suite"):
        assert getattr(pool.spec, fact) == getattr(sync.spec, fact)


@pytest.mark.parametrize(
    ("env_id", "n_obs", "steps", "threshold"),
    [
        ("LunarLander-v3", 8, 1000, 200.0),
        ("LunarLanderContinuous-v3", 8, 1000, 200.0),
        ("BipedalWalker-v3", 24, 1600, 300.0),
    ],
)
def test_box2d_bounds_are_usable(env_id, n_obs, steps, threshold):
    """EnvPool's own have low = the smallest positive float; Gymnasium's need Box2D to read."""
    env = make_vector_env(env_id, 2)
    space = env.observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.shape == (n_obs,)
    assert (space.low < space.high).all()
    assert (space.low <= 0).all()
    assert np.isfinite(space.high).all()
    assert all(space.contains(obs) for obs in env.reset(0))
    assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (steps, threshold)
    assert env.spec.suite == "box2d"


@pytest.mark.parametrize(
    ("env_id", "kwargs", "engine"),
    [
        ("CartPole-v1", {}, "vector"),
        ("LunarLander-v3", {}, "envpool"),
        ("HalfCheetah-v5", {"ctrl_cost_weight": 0.2}, "envpool"),
        ("HalfCheetah-v5", {"default_camera_config": {}}, "sync"),
        ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": True}, "envpool"),
        ("FrozenLake-v1", {"is_slippery": False}, "sync"),
        ("GsolveTest/Counting-v0", {}, "vector"),
        ("GsolveTest/Drifting-v0", {}, "sync"),
        ("Taxi-v3", {}, "envpool"),
        ("Bandit-v0", {}, "own"),
        ("Probe/ActionReward-v0", {}, "own"),
    ],
)
@pytest.mark.usefixtures("gymnasium_mujoco")
def test_auto_chooses_and_says_why(env_id, kwargs, engine):
    env = make_vector_env(env_id, 2, env_kwargs=kwargs)
    assert env.spec.engine == engine
    assert env.spec.engine_reason


def test_a_fallback_names_the_reason():
    env = make_vector_env("FrozenLake-v1", 2, env_kwargs={"is_slippery": False})
    assert "always slippery" in env.spec.engine_reason
    env.reset(0)
    assert env.step([2, 1]).obs.tolist() == [1, 4]  # it moves where it is told


def test_lunar_lander_continuous_is_an_id_in_envpool():
    env = make_vector_env("LunarLander-v3", 2, env_kwargs={"continuous": True})
    assert env.spec.env_id == "LunarLander-v3"
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert make_vector_env(
        "LunarLander-v3", 2, env_kwargs={"continuous": False}
    ).action_space == gymnasium.spaces.Discrete(4)


@pytest.mark.parametrize("map_name", ["4x4", "8x8"])
def test_envpool_frozen_lake_moves_as_gymnasiums_tables_say(map_name, record):
    table = gymnasium.make("FrozenLake-v1", map_name=map_name).unwrapped.P  # type: ignore[attr-defined]
    env = make_vector_env("FrozenLake-v1", 64, env_kwargs={"map_name": map_name})
    rollout = record(env, seed=0, n_steps=300)
    seen = set()
    for t, i in np.argwhere(~rollout.is_reset):
        state, action = int(rollout.obs[t, i]), int(rollout.actions[t, i])
        outcome = (int(rollout.next_obs[t, i]), rollout.reward[t, i], rollout.terminated[t, i])
        assert any(outcome == legal[1:] for legal in table[state][action])
        seen.add((state, action, outcome[0]))
    assert len(seen) > 50


def test_env_kwargs_reach_the_env(record):
    cheap = make_vector_env("HalfCheetah-v5", 1, env_kwargs={"ctrl_cost_weight": 0.0})
    dear = make_vector_env("HalfCheetah-v5", 1, env_kwargs={"ctrl_cost_weight": 100.0})
    cost = record(cheap, 0, 5).reward.sum() - record(dear, 0, 5).reward.sum()
    assert cost > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "CartPol-v1"}, "Unknown environment 'CartPol-v1'. Did you mean .*CartPole-v1"),
        ({"env_id": "cartpole-v1"}, "Did you mean CartPole-v1"),
        ({"env_id": "Bandit-v7"}, "Did you mean Bandit-v0"),
        ({"env_id": "Probe/Nothing-v0"}, "Unknown environment .* Probes: Probe/ConstantReward-v0"),
        ({"env_id": "Qqqqqq"}, "No registered id is like it. .*plugins"),
        ({"env_id": "Nope-v1", "vectorization_mode": "sync"}, "Unknown environment"),
        (
            {"env_id": "Taxi-v3", "vectorization_mode": "sync"},
            "Gymnasium has no 'Taxi-v3', EnvPool",
        ),
        ({"env_id": "Nope-v1", "vectorization_mode": "envpool"}, "Unknown environment"),
        ({"env_id": "no_such_module:Env-v0"}, "cannot import 'no_such_module'"),
        ({"env_id": "CartPole-v1", "vectorization_mode": "fast"}, "'fast' is unknown, expected"),
        ({"env_id": "CartPole-v1", "n_envs": 0}, "n_envs must be an int >= 1, got 0"),
        ({"env_id": "CartPole-v1", "n_envs": 2.0}, "n_envs must be an int >= 1, got 2.0"),
        (
            {"env_id": "CartPole-v1", "max_episode_steps": 0},
            "max_episode_steps must be an int >= 1",
        ),
        ({"env_id": "CartPole-v1", "render_mode": "human"}, "render_mode must be rgb_array"),
        ({"env_id": "Pendulum-v1", "vectorization_mode": "vector"}, "vector entry point"),
        ({"env_id": "Bandit-v0", "vectorization_mode": "async"}, "has no async engine"),
        ({"env_id": "LunarLander-v3", "vectorization_mode": "sync"}, "cannot be made by gymnasium"),
        (
            {"env_id": "GsolveTest/Text-v0", "vectorization_mode": "sync"},
            "observations of type Dict are not supported: none of Dict",
        ),
    ],
)
def test_what_cannot_be_made_is_explained(arguments, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env(**{"n_envs": 2, **arguments})


@pytest.mark.parametrize(
    ("env_id", "mode", "kwargs", "message"),
    [
        (
            "FrozenLake-v1",
            "envpool",
            {"is_slippery": False},
            "always slippery. Use .* auto or sync",
        ),
        ("Acrobot-v1", "envpool", {"gravity": 3}, "EnvPool's Acrobot-v1 does not take gravity"),
        ("Taxi-v3", "auto", {"colour": 1}, "EnvPool's Taxi-v3 does not take colour"),
        ("HalfCheetah-v5", "auto", {"ctrl_cost_weight": "much"}, "EnvPool refuses env_kwargs"),
        ("CartPole-v1", "auto", {"gravity": 3}, "cannot be made .* unexpected keyword .*gravity"),
        ("Acrobot-v1", "sync", {"gravity": 3}, "cannot be made .* unexpected keyword .*gravity"),
        ("Acrobot-v1", "auto", {"max_episode_steps": 3}, "Set the field max_episode_steps instead"),
        ("Acrobot-v1", "auto", {"seed": 3}, "seed cannot be given in env_kwargs"),
        ("Acrobot-v1", "auto", {"render_mode": "human"}, "The framework chooses it"),
    ],
)
def test_bad_env_kwargs_are_explained(env_id, mode, kwargs, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env(env_id, 2, vectorization_mode=mode, env_kwargs=kwargs)


def test_env_from_config():
    """Every field of a config that is about the environment reaches it."""
    config: Any = SimpleNamespace(
        env_id="CartPole-v1",
        env_kwargs={"sutton_barto_reward": True},
        env_wrappers=[{"id": "RewardScale", "scale": 3.0}],
        max_episode_steps=4,
        vectorization_mode="sync",
        spec={},
        gamma=0.99,
        tasks=None,
    )
    env = env_from_config(config, 2)
    assert env.action_mask is None
    assert (env.n_envs, env.spec.engine, env.spec.max_episode_steps) == (2, "sync", 4)
    env.reset(0)
    assert env.step([0, 0]).reward.tolist() == [0.0, 0.0]


def test_module_prefix_imports_and_registers():
    env = make_vector_env("gymnasium:Acrobot-v1", 2, vectorization_mode="sync")
    assert env.spec.max_episode_steps == 500


@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3", "MountainCar-v0"])
def test_render(env_id):
    env = make_vector_env(env_id, 2, render_mode="rgb_array")
    env.reset(0)
    frame = env.render(1)
    assert frame is not None
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert frame.std() > 0


def test_mujoco_loads_one_opengl_before_it_draws(monkeypatch):
    """Drawing without it ends the process, so that a missing library is told at making."""
    import ctypes

    loaded = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: loaded.append(name))
    make_vector_env("Hopper-v5", 1, render_mode="rgb_array")
    if sys.platform == "linux":
        assert len(loaded) == 1
        assert "libEGL" in loaded[0]

    def missing(name: str, mode: int) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    make_vector_env("Hopper-v5", 1)
    make_vector_env("Pendulum-v1", 1, render_mode="rgb_array")
    if sys.platform == "linux":
        with pytest.raises(EnvError, match=r"drawing MuJoCo needs libEGL.so.1"):
            make_vector_env("Hopper-v5", 1, render_mode="rgb_array")


def test_render_must_be_asked_for_and_may_be_nothing():
    env = make_vector_env("Acrobot-v1", 1)
    env.reset(0)
    with pytest.raises(EnvError, match="render_mode='rgb_array'"):
        env.render()
    toy = make_vector_env("Taxi-v3", 1, render_mode="rgb_array")
    toy.reset(0)
    assert toy.render() is None


@pytest.mark.parametrize(
    ("entry_point", "suite"),
    [
        ("gymnasium.envs.toy_text.taxi:TaxiEnv", "toy_text"),
        ("envpool.mujoco.gym", "mujoco"),
        ("envpool.mujoco.dmc", "dmc"),
        ("envpool.box2d", "box2d"),
        ("my_package.envs:Maze", "other"),
        (object, "other"),
    ],
)
def test_suites(entry_point, suite):
    assert suite_of(entry_point) == suite


def test_imports_stay_light():
    """EnvPool takes 1.5 s to import, torch 2 s: the command line pays for neither by asking."""
    code = (
        "import sys\n"
        "from gymnasium_solver.envs.wrappers import wrapper_names; wrapper_names()\n"
        "assert 'gymnasium' not in sys.modules and 'numpy' not in sys.modules\n"
        "from gymnasium_solver.envs.make import make_vector_env\n"
        "assert 'envpool' not in sys.modules and 'torch' not in sys.modules\n"
        "make_vector_env('Bandit-v0', 2).reset(0)\n"
        "make_vector_env('CartPole-v1', 8).reset(0)\n"
        "assert 'envpool' not in sys.modules and 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_taxi_never_starts_with_the_passenger_at_the_destination() -> None:
    """As in Gymnasium, whose 300 starts leave those out; EnvPool draws them one time in four."""
    env = make_vector_env("Taxi-v3", 32)
    starts = [env.reset(seed) for seed in range(40)]
    rng = np.random.default_rng(0)
    for _ in range(450):  # past two time limits
        step = env.step(rng.integers(6, size=32))
        starts.append(step.obs[step.is_reset])
        assert not step.episode_length[step.is_reset].any()
    drawn = np.concatenate(starts)
    assert not (drawn // 4 % 5 == drawn % 4).any()
    assert len(np.unique(drawn)) > 290


@pytest.mark.parametrize(
    ("env_id", "threshold"),
    [
        ("PointMaze_UMaze-v3", None),
        ("FetchReach-v4", None),
        ("MetaWorld/Reach-v3", None),  # EnvPool says 10; random actions score hundreds
        ("HalfCheetah-v4", 4800.0),
        ("Taxi-v3", 8.0),  # Gymnasium has a later version only
    ],
)
def test_a_threshold_that_is_a_placeholder_counts_as_none(env_id, threshold):
    env = make_vector_env(env_id, 1, vectorization_mode="envpool")
    assert env.spec.reward_threshold == threshold


def test_a_package_that_rules_out_envpool_is_named():
    env = make_vector_env("gymnasium:FrozenLake-v1", 1)
    assert env.spec.engine == "sync"
    assert env.spec.notes == (
        "EnvPool has this environment too and steps it much faster: use FrozenLake-v1 for "
        "gymnasium:FrozenLake-v1",
    )
