"""The environments of the benchmark of defaults: sound, and of the scales they stand for."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks import own_envs, own_tasks
from gymnasium_solver.envs.env_findings import examine


@pytest.mark.parametrize("env_id", list(own_envs.TASKS))
def test_they_are_sound(env_id: str) -> None:
    found = {finding.name: finding for finding in examine(f"{own_envs.MODULE}:{env_id}", {}, 600)}
    assert not [f for f in found.values() if f.level == "problem"]
    is_huge = env_id == "Huge-v0"
    assert ("normalize_obs: rolling" in found["scale"].fix) == is_huge
    assert ("normalize_reward: true" in found["reward"].fix) == is_huge


def played(env_id: str, act: Any, episodes: int = 20) -> float:
    env, returns = gymnasium.make(env_id), []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def to_the_goal(obs: dict[str, np.ndarray]) -> int:
    gap = obs["goal"] - obs["agent"]
    axis = int(gap[0] == 0)
    return axis if gap[axis] > 0 else axis + 2


def under_the_ball(board: np.ndarray) -> int:
    balls, paddle = np.argwhere(board[:-1]), int(np.argmax(board[-1]))
    return 1 if not len(balls) else int(np.sign(balls[0][1] - paddle)) + 1


def to_the_origin(obs: np.ndarray) -> np.ndarray:
    return np.clip(-(obs[:2] + obs[2:]) / 1e5, -1, 1)


@pytest.mark.parametrize(
    ("env_id", "act"),
    [("Grid-v0", to_the_goal), ("Board-v0", under_the_ball), ("Huge-v0", to_the_origin)],
)
def test_the_bar_lies_between_random_actions_and_a_good_policy(env_id: str, act: Any) -> None:
    task, space = own_envs.TASKS[env_id], gymnasium.make(env_id).action_space
    space.seed(0)
    assert played(env_id, act) > task.bar
    assert played(env_id, lambda obs: space.sample()) < (task.bar + task.random) / 2
    assert own_tasks.__doc__ is not None
    assert env_id in own_tasks.__doc__
