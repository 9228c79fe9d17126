"""EnvPool against Gymnasium: the same dynamics from the same state, and where a state cannot be
set, the same distribution of what random actions score. Envs stepped directly give what Gymnasium's
SyncVectorEnv gives for them."""

import importlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gymnasium_solver.envs.engines.c import classics
from gymnasium_solver.envs.engines.gymnasium import DirectEnvs, GymnasiumEngine
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.spec import C_IS_FASTEST, POOL_DIFFERS

CLASSIC = ["MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]


def set_state(env: Any, obs: np.ndarray) -> None:
    """Put Gymnasium's env where EnvPool's first observation is."""
    x = obs.astype(np.float64)
    name = env.spec.id
    if name.startswith("Pendulum"):
        env.unwrapped.state = np.array([np.arctan2(x[1], x[0]), x[2]])
    elif name.startswith("Acrobot"):
        angles = [np.arctan2(x[1], x[0]), np.arctan2(x[3], x[2])]
        env.unwrapped.state = np.array([*angles, *x[4:]])
    else:
        env.unwrapped.state = x.copy()


def differences(env_id: str) -> list[float]:
    """How far EnvPool and Gymnasium come apart in one step, from states up to the limits of speed:
    half of the actions are random, half push where it moves."""
    pool = make_vector_env(env_id, 1, vectorization_mode="envpool")
    gym: Any = gymnasium.make(env_id)
    obs, found = pool.reset(5), list[float]()
    gym.reset(seed=0)
    gym.action_space.seed(1)
    for t in range(600):
        action = gym.action_space.sample()
        if t // 50 % 2:
            forwards = obs[0][-1] > 0
            box = gym.action_space
            ends = (box.low, box.high) if isinstance(box, Box) else (0, box.n - 1)
            action = ends[int(forwards)]
        set_state(gym, obs[0])
        step = pool.step(np.asarray(action)[None])
        expected, reward, terminated, _, _ = gym.unwrapped.step(action)
        obs = step.obs
        if step.is_reset[0] or step.truncated[0]:
            continue
        assert step.terminated[0] == terminated
        found += [float(np.abs(obs[0] - expected).max()), abs(float(step.reward[0] - reward))]
    return found


@pytest.mark.parametrize("env_id", CLASSIC)
def test_classic_control_moves_alike_from_the_same_state(env_id: str) -> None:
    """Where it does not, `auto` takes Gymnasium's. If this fails because EnvPool was mended, the
    entry of POOL_DIFFERS can go."""
    assert (max(differences(env_id)) > 2e-4) == (env_id in POOL_DIFFERS)


@pytest.mark.parametrize("env_id", [*CLASSIC, "gymnasium:Acrobot-v1"])
def test_classic_control_is_stepped_in_c_where_that_works(env_id: str, monkeypatch: Any) -> None:
    name = env_id.removeprefix("gymnasium:")
    env: Any = make_vector_env(env_id, 2)
    env.reset(seed=1)
    assert env.spec.engine == "sync"
    assert env.spec.notes == ()
    if name in C_IS_FASTEST:
        assert env.compiled is not None, "in Python it is slower than EnvPool"
        monkeypatch.setattr(classics, "_program", lambda kind: None)
        assert make_vector_env(name, 2).spec.engine == "envpool", "without a compiler"


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"])
def test_mujoco_moves_alike_from_the_same_state(env_id, gymnasium_mujoco):
    pool = make_vector_env(env_id, 1, vectorization_mode="envpool")
    obs = pool.reset(5)[0].astype(np.float64)
    gym: Any = gymnasium.make(env_id)
    gym.reset(seed=0)
    n_qpos = gym.unwrapped.model.nq - 1  # the distance run is no part of an observation
    gym.unwrapped.set_state(np.concatenate([[0.0], obs[:n_qpos]]), obs[n_qpos:])
    gym.action_space.seed(1)
    for _ in range(8):  # from float32 observations: later chaos takes over
        action = gym.action_space.sample()
        step = pool.step(action[None])
        expected, reward, *_ = gym.step(action)
        np.testing.assert_allclose(step.obs[0], expected, atol=2e-3)
        np.testing.assert_allclose(step.reward[0], reward, atol=5e-3)


def test_the_finger_pushes_its_spinner_as_in_dm_control() -> None:
    """MuJoCo 3.5 and 3.6 make contacts with the spinner 64 times as soft."""
    mujoco = pytest.importorskip("mujoco")
    pool = make_vector_env("FingerSpin-v1", 1, vectorization_mode="envpool")
    obs: Any = pool.reset(4)
    envpool = importlib.import_module("envpool")
    folder = Path(envpool.make_spec("FingerSpin-v1").config.base_path)
    model = mujoco.MjModel.from_xml_path(str(folder / "mujoco/assets_dmc/finger.xml"))
    model.dof_damping[model.joint("hinge").dofadr[0]] = 0.03  # of the task
    model.body_invweight0[model.body("spinner").id, 0] = 0.0  # its centre of mass cannot move
    data, rng, pushed = mujoco.MjData(model), np.random.default_rng(0), 0.0
    *joints, x, z = obs["position"][0].astype(np.float64)
    data.qpos[:] = [*joints, np.arctan2(-x, z)]
    for frame in range(40):
        if frame % 7 == 0:
            action = rng.uniform(-1.0, 1.0, 2).astype(np.float32)
        step: Any = pool.step(action[None])
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 2)
        np.testing.assert_allclose(step.obs["velocity"][0], data.qvel, atol=1e-3)
        pushed = max(pushed, abs(data.qvel[2]))
    assert pushed > 10.0


RESETS = """
import os
from pathlib import Path
from gymnasium_solver.envs.make import make_vector_env

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

env = make_vector_env("FetchReach-v4", 4)
assert env.spec.engine == "envpool"
after = [(env.reset(seed), megabytes())[1] for seed in range(5)]
print(max(after) - after[0])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are not asked")
def test_resets_with_a_seed_do_not_keep_the_memory_of_older_pools() -> None:
    """Each is a new pool, 40 MB here, at every evaluation of a training. In a process of its own:
    what other tests left in this one would be counted."""
    child = subprocess.run([sys.executable, "-c", RESETS], check=True, capture_output=True)
    megabytes_more = float(child.stdout)
    assert megabytes_more < 60.0


def test_cliff_walking_is_the_same_walk(record):
    """It has one start and no chance: the engines must agree in every step."""
    pool, gym = (
        make_vector_env("CliffWalking-v1", 4, vectorization_mode=mode, max_episode_steps=50)
        for mode in ("envpool", "sync")
    )
    first = record(pool, seed=1, n_steps=300)
    assert (first.reward == -100).any()
    assert first.same_as(record(gym, seed=2, n_steps=300, actions=list(first.actions)))


@pytest.mark.parametrize(
    ("env_id", "limit"), [("FrozenLake8x8-v1", None), ("FrozenLake-v1", None), ("Taxi-v3", 30)]
)
def test_random_actions_score_alike(env_id, limit, record):
    means, errors = [], []
    for mode in ("envpool", "sync"):
        known = "Taxi-v4" if env_id == "Taxi-v3" and "Taxi-v3" not in gymnasium.registry else env_id
        used = env_id if mode == "envpool" else known
        env = make_vector_env(used, 32, vectorization_mode=mode, max_episode_steps=limit)
        rollout = record(env, seed=3, n_steps=300, action_seed=7)
        for scores in (rollout.returns[rollout.done], rollout.lengths[rollout.done]):
            means.append(np.mean(scores))
            errors.append(np.std(scores) / np.sqrt(len(scores)))
    for score in (0, 1):  # returns, lengths
        gap = abs(means[score] - means[score + 2])
        assert gap <= 4 * np.hypot(errors[score], errors[score + 2]) + 1e-9


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


def as_delivered(step: Any) -> Any:
    """Theirs as the contract delivers it: float32 observations and rewards."""
    first, *rest = step
    rest = [r.astype(np.float32) if getattr(r, "dtype", None) == np.float64 else r for r in rest]
    return [first.astype(np.float32) if first.dtype == np.float64 else first, *rest]


# With a time limit in one, infos of numbers and of arrays (masks), Discrete and Box everywhere.
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "Acrobot-v1"]
)
def test_as_sync_vector_env(env_id: str, n_envs: int) -> None:
    def make() -> gymnasium.Env:
        return gymnasium.make(env_id, max_episode_steps=30)

    theirs = SyncVectorEnv([make] * n_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    ours = DirectEnvs([make() for _ in range(n_envs)])
    assert ours.single_observation_space == theirs.single_observation_space
    seeds: list[int | None] = list(range(3, 3 + n_envs))
    assert all(map(equal, ours.reset(seed=seeds), as_delivered(theirs.reset(seed=seeds))))
    theirs.action_space.seed(1)
    n_over = 0
    for _ in range(200):
        actions = theirs.action_space.sample()
        got, expected = ours.step(actions), as_delivered(theirs.step(actions))
        assert all(map(equal, got, expected)), (got, expected)
        n_over += int(np.count_nonzero(got[2] | got[3]))
    assert n_over > 3
    ours.close()
    assert ours.closed


def test_copies_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in their spaces"):
        DirectEnvs([gymnasium.make("CartPole-v1"), gymnasium.make("Acrobot-v1")])


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1", "GsolveTest/Parts-v0"])
def test_sync_is_direct(env_id: str) -> None:
    env = make_vector_env(env_id, 1, vectorization_mode="sync")
    assert isinstance(env, GymnasiumEngine)
    assert isinstance(env._vec, DirectEnvs)
    assert env.spec.engine == "sync"
