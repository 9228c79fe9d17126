"""The vector env contract, on every engine: counting, boundaries, limits, seeds, dtypes."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import can_compile

needs_compiler = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")
COUNTING = "GsolveTest/Counting-v0"
COUNTING_C = f"c:{Path(__file__).with_name('counting.c')}"
# One env of each engine, with episodes short enough to end many times in 200 steps.
EVERY_ENGINE = [
    ("CartPole-v1", "envpool"),
    ("CartPole-v1", "vector"),
    ("CartPole-v1", "sync"),
    ("CartPole-v1", "async"),
    ("Probe/Counting-v0", "auto"),
    ("Bandit-v0", "auto"),
    (COUNTING, "vector"),
    (COUNTING, "sync"),
    (COUNTING, "async"),
    pytest.param((COUNTING_C, "auto"), marks=needs_compiler),
]
CARTPOLE_ENGINES = ["envpool", "vector", "sync", "async"]
REAL = ["Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "FrozenLake-v1", "Taxi-v3"]
REAL += ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "Hopper-v5"]
REAL += ["ALE/Pong-v5"]


@pytest.fixture(scope="module", params=EVERY_ENGINE, ids=lambda p: f"{Path(p[0]).name}-{p[1]}")
def env(request: pytest.FixtureRequest) -> Iterator[VectorEnv]:
    """Of each engine one for all tests, since a reset begins anew."""
    env_id, mode = request.param
    made = make_vector_env(env_id, 4, vectorization_mode=mode)
    with pytest.raises(EnvError, match="before reset"):
        made.step(np.zeros(4, np.int64))
    yield made
    made.close()


@pytest.fixture(scope="module")
def rollout(env, record):
    return record(env, seed=1, n_steps=200)


def assert_accounts_agree(rollout) -> None:
    """Env steps (without reset rows) = lengths of ended + running episodes; likewise returns."""
    env_steps = np.count_nonzero(~rollout.is_reset, axis=0)
    running = np.where(rollout.done[-1], 0, rollout.lengths[-1])
    assert np.array_equal(env_steps, (rollout.lengths * rollout.done).sum(axis=0) + running)
    running_return = np.where(rollout.done[-1], 0, rollout.returns[-1])
    ended_returns = (rollout.returns * rollout.done).sum(axis=0)
    paid = rollout.reward.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(paid, ended_returns + running_return, rtol=1e-12, atol=1e-9)


def test_env_steps_equal_the_sum_of_episode_lengths(rollout):
    assert rollout.done.sum() > 10
    assert_accounts_agree(rollout)


def test_a_reset_row_follows_every_end_and_nothing_else(rollout):
    assert not rollout.is_reset[0].any()
    assert np.array_equal(rollout.is_reset[1:], rollout.done[:-1])
    assert (rollout.reward[rollout.is_reset] == 0).all()
    assert not rollout.done[rollout.is_reset].any()
    assert (rollout.lengths[rollout.is_reset] == 0).all()
    assert (rollout.returns[rollout.is_reset] == 0).all()


def test_the_action_of_a_reset_row_is_ignored(env, rollout, record):
    assert rollout.is_reset.any()
    changed = list(np.where(rollout.is_reset, 1 - rollout.actions % 2, rollout.actions))
    assert rollout.same_as(record(env, seed=1, n_steps=200, actions=changed))


def test_same_seed_same_trajectory_and_reset_works_mid_episode(env, rollout, record):
    env.reset(5)
    env.step(rollout.actions[0])
    assert rollout.same_as(record(env, seed=1, n_steps=200))


def test_another_env_takes_the_same_trajectory_and_none_after_its_end(env, rollout, record):
    other = make_vector_env(env.spec.env_id, 4, vectorization_mode=_mode(env))
    assert rollout.same_as(record(other, seed=1, n_steps=200))
    other.close()
    other.close()
    with pytest.raises(EnvError, match="after close"):
        other.step(np.zeros(4, np.int64))
    with pytest.raises(EnvError, match="after close"):
        other.reset(0)


def _mode(env: VectorEnv) -> str:
    return "auto" if env.spec.engine in ("own", "c") else env.spec.engine


def test_dtypes_shapes_and_fresh_arrays(env, record):
    rollout = record(env, seed=1, n_steps=60)
    n = env.n_envs
    kept = [(step, [np.array(part) for part in step[:7]]) for step in rollout.steps]
    for step, copies in kept:
        assert step.obs.shape == (n, *env.observation_space.shape)
        assert step.obs.dtype == env.observation_space.dtype
        assert step.obs.flags.c_contiguous
        dtypes = [part.dtype for part in step[1:7]]
        assert dtypes == [np.float32, bool, bool, bool, np.float64, np.int64]
        assert all(part.shape == (n,) for part in step[1:7])
        assert env.observation_space.contains(step.obs[0])
        assert all(np.array_equal(a, b) for a, b in zip(step[:7], copies, strict=True))
    record(env, seed=2, n_steps=5)
    for step, copies in kept:  # later steps did not write into what was handed out
        assert all(np.array_equal(a, b) for a, b in zip(step[:7], copies, strict=True))


@pytest.mark.parametrize("mode", ["own", "vector", "sync", "async"])
@pytest.mark.parametrize("ends", ["terminated", "truncated", "both"])
def test_counting_env_no_transition_crosses_an_episode(mode, ends, record):
    if mode == "own":
        env = make_vector_env("Probe/Counting-v0", 3, env_kwargs={"length": 3, "ends": ends})
    else:
        env = make_vector_env(COUNTING, 3, vectorization_mode=mode, env_kwargs={"ends": ends})
    rollout = record(env, seed=7, n_steps=60)
    real = ~rollout.is_reset
    (episode, step), (next_episode, next_step) = rollout.obs.T, rollout.next_obs.T
    assert np.array_equal(next_episode[real.T], episode[real.T])
    assert np.array_equal(next_step[real.T], step[real.T] + 1)  # up to the true final observation
    assert np.array_equal(next_episode[~real.T], episode[~real.T] + 1)
    assert (next_step[~real.T] == 0).all()
    assert np.array_equal(rollout.lengths[real], next_step.T[real])
    assert np.array_equal(rollout.terminated, rollout.done & (ends != "truncated"))
    assert np.array_equal(rollout.truncated, rollout.done & (ends != "terminated"))
    assert len(set(rollout.lengths[rollout.done])) > 1  # the envs were out of phase
    assert_accounts_agree(rollout)


def cartpole_next(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Gymnasium's equations of motion, in float64."""
    x, x_dot, theta, theta_dot = np.moveaxis(obs.astype(np.float64), -1, 0)
    force = np.where(action == 1, 10.0, -10.0)
    temp = (force + 0.05 * theta_dot**2 * np.sin(theta)) / 1.1
    theta_acc = (9.8 * np.sin(theta) - np.cos(theta) * temp) / (
        0.5 * (4 / 3 - 0.1 * np.cos(theta) ** 2 / 1.1)
    )
    x_acc = temp - 0.05 * theta_acc * np.cos(theta) / 1.1
    return np.stack(
        [
            x + 0.02 * x_dot,
            x_dot + 0.02 * x_acc,
            theta + 0.02 * theta_dot,
            theta_dot + 0.02 * theta_acc,
        ],
        axis=-1,
    )


def fallen(obs: np.ndarray) -> np.ndarray:
    return (np.abs(obs[..., 0]) > 2.4) | (np.abs(obs[..., 2]) > 12 * np.pi / 180)


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("mode", CARTPOLE_ENGINES)
def test_cartpole_obeys_its_equations_up_to_the_final_observation(mode, limit, record):
    n_envs = 3 if mode == "async" else 16
    env = make_vector_env("CartPole-v1", n_envs, vectorization_mode=mode, max_episode_steps=limit)
    rollout = record(env, seed=3, n_steps=120)
    real = ~rollout.is_reset
    expected = cartpole_next(rollout.obs, rollout.actions)
    np.testing.assert_allclose(rollout.next_obs[real], expected[real], atol=1e-5)
    assert (np.abs(rollout.next_obs[~real]) <= 0.05).all()
    assert np.array_equal(rollout.terminated, fallen(rollout.next_obs) & real)
    assert np.array_equal(rollout.truncated, (rollout.lengths == (limit or 500)) & real)
    assert_accounts_agree(rollout)


@pytest.mark.parametrize("mode", ["envpool", "vector", "sync"])
def test_both_flags_where_a_fall_meets_the_time_limit(mode, record):
    """EnvPool by itself calls such a row truncated only, and its value would be bootstrapped."""
    env = make_vector_env("CartPole-v1", 64, vectorization_mode=mode, max_episode_steps=9)
    push_left = [np.zeros(64, np.int64)] * 40
    rollout = record(env, seed=0, n_steps=40, actions=push_left)
    at_limit = rollout.lengths == 9
    both = rollout.terminated & rollout.truncated
    assert both.sum() > 20
    assert (at_limit & ~both).sum() > 5  # and some reach it upright
    assert np.array_equal(both, at_limit & fallen(rollout.next_obs))
    assert np.array_equal(rollout.truncated, at_limit)
    assert np.array_equal(rollout.terminated, fallen(rollout.next_obs) & ~rollout.is_reset)
    assert_accounts_agree(rollout)


@pytest.mark.parametrize("limit", [1, 7])
@pytest.mark.parametrize(
    ("env_id", "mode"),
    [
        ("Pendulum-v1", "envpool"),
        ("Pendulum-v1", "sync"),
        ("Pendulum-v1", "async"),
        ("CliffWalking-v1", "envpool"),  # has no limit of its own
        ("CartPole-v1", "vector"),
        ("ALE/Pong-v5", "envpool"),
        ("Probe/TruncatedReward-v0", "auto"),
    ],
)
def test_time_limit_override(env_id, mode, limit, record):
    env = make_vector_env(env_id, 2, vectorization_mode=mode, max_episode_steps=limit)
    assert env.spec.max_episode_steps == limit
    rollout = record(env, seed=0, n_steps=30)
    assert rollout.lengths.max() <= limit
    assert rollout.truncated[rollout.lengths == limit].all()
    assert rollout.done.any()
    assert_accounts_agree(rollout)


@pytest.mark.parametrize("env_id", REAL)
def test_real_envs_on_envpool(env_id, record):
    """Accounts, determinism, and resets by the time limit while other rows go on."""
    env = make_vector_env(env_id, 5, max_episode_steps=23, vectorization_mode="envpool")
    rollout = record(env, seed=11, n_steps=100)
    assert rollout.done.any()
    assert np.array_equal(rollout.is_reset[1:], rollout.done[:-1])
    assert (rollout.reward[rollout.is_reset] == 0).all()
    assert_accounts_agree(rollout)
    assert rollout.same_as(record(env, seed=11, n_steps=100))
    assert np.isfinite(rollout.next_obs).all()


def test_rows_keep_their_place_when_some_are_cut(record):
    """Envs out of phase: a cut row must not shift its neighbours (checked by the equations)."""
    env = make_vector_env("CartPole-v1", 6, vectorization_mode="envpool", max_episode_steps=12)
    lefts = [np.array([0, 1, 0, 1, 0, 1]) ^ (t % 5 == 0) for t in range(200)]
    rollout = record(env, seed=2, n_steps=200, actions=lefts)
    partly_cut = rollout.truncated.any(axis=1) & ~rollout.truncated.all(axis=1)
    assert partly_cut.sum() > 5
    real = ~rollout.is_reset
    expected = cartpole_next(rollout.obs, rollout.actions)
    np.testing.assert_allclose(rollout.next_obs[real], expected[real], atol=1e-5)


def test_reset_right_after_a_cut_forgets_the_cut(record):
    env = make_vector_env("Pendulum-v1", 2, max_episode_steps=7)
    record(env, seed=1, n_steps=7)  # ends on the cut
    after = record(env, seed=2, n_steps=30)
    fresh = make_vector_env("Pendulum-v1", 2, max_episode_steps=7)
    assert after.same_as(record(fresh, seed=2, n_steps=30))


def test_envpool_is_what_its_public_step_returns(record):
    """We step it by its compiled calls: the same as its own API, row for row."""
    import envpool

    from gymnasium_solver.envs.vector import env_seeds

    env = make_vector_env("Acrobot-v1", 3, vectorization_mode="envpool")
    ours = record(env, seed=4, n_steps=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = envpool.make_gymnasium("Acrobot-v1", num_envs=3, seed=env_seeds(4, 3))
        first, _ = pool.reset()
        theirs = [pool.step(a) for a in ours.actions]
    assert np.array_equal(ours.obs[0], first)
    for t, (obs, reward, terminated, truncated, info) in enumerate(theirs):
        assert np.array_equal(ours.next_obs[t], obs)
        assert np.array_equal(ours.reward[t], reward)
        assert np.array_equal(ours.terminated[t], terminated)
        assert np.array_equal(ours.truncated[t], truncated)
        assert np.array_equal(ours.steps[t].info["state"], info["state"])


def test_envpool_does_not_depend_on_threads(record, monkeypatch):
    results = []
    for n_threads in (1, 3):
        monkeypatch.setattr(
            "gymnasium_solver.envs.engines.envpool._num_threads", lambda suite, n, k=n_threads: k
        )
        env = make_vector_env("LunarLander-v3", 6, max_episode_steps=30)
        results.append(record(env, seed=1, n_steps=80))
    assert results[0].same_as(results[1])


@pytest.mark.parametrize("mode", CARTPOLE_ENGINES)
def test_adjacent_seeds_share_no_stream(mode):
    env = make_vector_env("CartPole-v1", 4, vectorization_mode=mode)
    starts = np.concatenate([env.reset(seed) for seed in range(6)])
    assert len(np.unique(starts, axis=0)) == len(starts)


@pytest.mark.parametrize("mode", ["envpool", "sync"])
def test_env_i_has_the_same_stream_for_any_number_of_envs(mode):
    few = make_vector_env("Pendulum-v1", 2, vectorization_mode=mode).reset(9)
    many = make_vector_env("Pendulum-v1", 5, vectorization_mode=mode).reset(9)
    assert np.array_equal(few, many[:2])


@pytest.mark.parametrize("seed", [-1, 1.5, True, None, "3"])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(EnvError, match="int >= 0"):
        make_vector_env("Bandit-v0", 1).reset(seed)


def test_large_seeds_work(env):
    assert np.isfinite(env.reset(2**63)).all()


@pytest.mark.parametrize("name", ["SameStep", "Undeclared"])
@pytest.mark.filterwarnings("ignore:.*AutoresetMode")
def test_unknown_autoreset_is_refused(name):
    with pytest.raises(EnvError, match=r"autoreset_mode=.*expected AutoresetMode.NEXT_STEP"):
        make_vector_env(f"GsolveTest/{name}-v0", 2, vectorization_mode="vector")


def test_envpool_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for env_id in ("CartPole-v1", "HalfCheetah-v5", "LunarLander-v3", "Taxi-v3"):
            env = make_vector_env(env_id, 2, vectorization_mode="envpool")
            env.reset(0)
            env.step(np.stack([env.action_space.sample() for _ in range(2)]))
            env.close()
