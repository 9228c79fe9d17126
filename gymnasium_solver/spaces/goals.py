"""Goal environments: Dict observations with an `achieved_goal` and a `desired_goal`.

Their reward is a function of the two, so the reward of a step can be computed for any other goal.
Hindsight replay (data/hindsight.py) is built on this. Engines provide the functions
(`VectorEnv.goal_functions`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Space, part_spaces

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
# (achieved goals after the step [B, ...], desired goals [B, ...]) -> [B]
GoalFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class GoalFunctions:
    """Reward and end of a step as functions of goals, for batches."""

    reward: GoalFunction
    """float32[B]."""
    terminated: GoalFunction | None = None
    """bool[B]. None: the end of an episode does not depend on the goal, or it is not known how."""


def check_goal_space(space: Space, env_id: str) -> None:
    """EnvError unless observations have an achieved and a desired goal of one form."""
    parts = part_spaces(space)
    if ACHIEVED not in parts or DESIRED not in parts:
        given = ", ".join(filter(None, parts)) or f"{type(space).__name__} observations"
        raise EnvError(
            f"her: {env_id} is not a goal environment: it needs Dict observations with the parts "
            f"{ACHIEVED} and {DESIRED}, but has {given}. Remove her."
        )
    achieved, desired = parts[ACHIEVED], parts[DESIRED]
    if (achieved.shape, achieved.dtype) != (desired.shape, desired.dtype):
        raise EnvError(
            f"her: {env_id} has achieved goals {achieved} and desired goals {desired}, expected "
            "the same shape and dtype. Remove her."
        )
