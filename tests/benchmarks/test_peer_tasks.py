"""Tasks that peers get in another form are the same tasks."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.auto import DMC, TASKS
from gymnasium_solver.envs.make import make_vector_env

OURS = [env_id for env_id, task in TASKS.items() if task.module == DMC]


@pytest.mark.parametrize("env_id", OURS)
def test_a_task_of_dm_control_is_the_one_that_solve_has(env_id: str) -> None:
    env: Any = gymnasium.make(f"{DMC}:{env_id}")
    ours = make_vector_env(env_id, 1)
    assert env.action_space == ours.action_space
    parts = ours.observation_space
    assert env.observation_space.shape == (gymnasium.spaces.flatdim(parts),)
    first, _ = env.reset(seed=3)
    rewards = [float(env.step(env.action_space.high)[1]) for _ in range(3)]
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    other, _ = env.reset()
    assert not np.array_equal(first, other)
    assert all(0.0 <= reward <= 1.0 for reward in rewards)
    ours.close()


def test_episodes_end_at_the_time_limit_alone() -> None:
    env: Any = gymnasium.make(f"{DMC}:{OURS[0]}")
    env.reset(seed=1)
    ends = [env.step(env.action_space.low)[2:4] for _ in range(1000)]
    assert not any(any(end) for end in ends[:-1])
    assert ends[-1] == (False, True)
