"""Rewards of EnvPool's goal environments as functions of goals.

EnvPool computes rewards in C++ and offers no `compute_reward`, so the formulas of
Gymnasium-Robotics are written here again, with the settings of the pool. Tests compare them with
the rewards that the pools give. The HandManipulate tasks (rotations of objects) are left out.
"""

from collections.abc import Callable
from typing import Any

from gymnasium_solver.envs.goals import distance_reward, is_near, nearness_reward
from gymnasium_solver.spaces.goals import GoalFunctions

MAZE_THRESHOLD = 0.45


def _by_distance(config: Any) -> GoalFunctions:
    return GoalFunctions(distance_reward(config.reward_type, config.distance_threshold))


def _maze(config: Any) -> GoalFunctions | None:
    if config.reset_target:  # the reward is that of the goal drawn at the same step
        return None
    reward = nearness_reward(config.reward_type, MAZE_THRESHOLD)
    return GoalFunctions(reward, None if config.continuing_task else is_near(MAZE_THRESHOLD))


# Beginnings of ids -> from the settings of a pool.
_FAMILIES: dict[str, Callable[[Any], GoalFunctions | None]] = {
    "Fetch": _by_distance,
    "HandReach": _by_distance,
    "PointMaze_": _maze,
}


def pool_goals(pool_id: str, config: Any) -> GoalFunctions | None:
    """The functions of a pool with these settings; None if its reward is not known here."""
    for beginning, make in _FAMILIES.items():
        if pool_id.startswith(beginning):
            return make(config)
    return None
