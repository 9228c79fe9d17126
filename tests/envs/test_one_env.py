"""A single env stepped directly gives what Gymnasium's SyncVectorEnv gives for it."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gymnasium_solver.envs.gymnasium_engine import GymnasiumEngine, OneEnv
from gymnasium_solver.envs.make import make_vector_env


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


# With a time limit in one, infos of numbers and of arrays (masks), Discrete and Box everywhere.
@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "Acrobot-v1"],
)
def test_as_sync_vector_env(env_id: str) -> None:
    def make() -> gymnasium.Env:
        return gymnasium.make(env_id, max_episode_steps=30)

    theirs = SyncVectorEnv([make], autoreset_mode=AutoresetMode.NEXT_STEP)
    ours = OneEnv(make())
    assert ours.single_observation_space == theirs.single_observation_space
    assert all(map(equal, ours.reset(seed=[3]), theirs.reset(seed=[3])))
    theirs.action_space.seed(1)
    n_over = 0
    for _ in range(200):
        actions = theirs.action_space.sample()
        got, expected = ours.step(actions), theirs.step(actions)
        assert all(map(equal, got, expected)), (got, expected)
        n_over += bool(got[2][0] or got[3][0])
    assert n_over > 3
    theirs.close()
    ours.close()
    assert ours.closed


def test_a_single_cartpole_goes_without_a_vector_env() -> None:
    env = make_vector_env("CartPole-v1", 1)
    assert isinstance(env, GymnasiumEngine)
    assert isinstance(env._vec, OneEnv)
    assert env.spec.engine == "sync"
    env.close()
    env = make_vector_env("Blackjack-v1", 1, vectorization_mode="sync")  # tuples are batched
    assert isinstance(env, GymnasiumEngine)
    assert isinstance(env._vec, SyncVectorEnv)
    env.close()
