"""Envs stepped directly give what Gymnasium's SyncVectorEnv gives for them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gymnasium_solver.envs.engines.gymnasium import DirectEnvs, GymnasiumEngine
from gymnasium_solver.envs.make import make_vector_env


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


# With a time limit in one, infos of numbers and of arrays (masks), Discrete and Box everywhere.
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "Acrobot-v1"],
)
def test_as_sync_vector_env(env_id: str, n_envs: int) -> None:
    def make() -> gymnasium.Env:
        return gymnasium.make(env_id, max_episode_steps=30)

    theirs = SyncVectorEnv([make] * n_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    ours = DirectEnvs([make() for _ in range(n_envs)])
    assert ours.single_observation_space == theirs.single_observation_space
    seeds: list[int | None] = list(range(3, 3 + n_envs))
    assert all(map(equal, ours.reset(seed=seeds), theirs.reset(seed=seeds)))
    theirs.action_space.seed(1)
    n_over = 0
    for _ in range(200):
        actions = theirs.action_space.sample()
        got, expected = ours.step(actions), theirs.step(actions)
        assert all(map(equal, got, expected)), (got, expected)
        n_over += int(np.count_nonzero(got[2] | got[3]))
    assert n_over > 3
    theirs.close()
    ours.close()
    assert ours.closed


def test_copies_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in their spaces"):
        DirectEnvs([gymnasium.make("CartPole-v1"), gymnasium.make("Acrobot-v1")])


def test_arrays_only() -> None:
    env = make_vector_env("CartPole-v1", 1)
    assert isinstance(env, GymnasiumEngine)
    assert isinstance(env._vec, DirectEnvs)
    assert env.spec.engine == "sync"
    env.close()
    env = make_vector_env("Blackjack-v1", 2, vectorization_mode="sync")  # tuples are batched
    assert isinstance(env, GymnasiumEngine)
    assert isinstance(env._vec, SyncVectorEnv)
    env.close()
