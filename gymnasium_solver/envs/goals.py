"""The reward of goal environments as a function of goals: Gymnasium's `compute_reward`.

    goals = goal_functions_of(env, "FetchReach-v4")        # a single Gymnasium env
    goals.reward(achieved, desired)                         # float32[B]

A `compute_reward(achieved_goal, desired_goal, info)` that takes batches is called with them. One
that takes a single pair is called for each row, which is slower. Which of the two it is, is found
by comparing both on the first batch. The same holds for `compute_terminated`. Infos are not kept in
a replay, so a function that reads `info` is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import gymnasium
import numpy as np

from gymnasium_solver.envs.env_bugs import explained
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import GoalFunction, GoalFunctions

COMPARED_ROWS = 16
# Gymnasium collects NumPy's bools as objects, with None for envs that report nothing.
_REPORTED = (bool, np.bool_, type(None))


def goal_functions_of(env: gymnasium.Env[Any, Any], env_id: str) -> GoalFunctions:
    """The functions of a single env; EnvError if it has no compute_reward."""
    found: list[Batched | None] = []
    for name, dtype in (("compute_reward", np.float32), ("compute_terminated", np.bool_)):
        try:
            method = env.get_wrapper_attr(name)
            found.append(Batched(method, dtype, f"{env_id}: {name}"))
        except AttributeError:
            found.append(None)
    reward, terminated = found
    if reward is None:
        raise EnvError(
            f"her: {env_id} has no compute_reward(achieved_goal, desired_goal, info), which "
            "hindsight replay calls for replaced goals. Add this method to the env, or remove her."
        )
    return GoalFunctions(reward, terminated)


class NoInfo(dict[str, Any]):
    """The `info` of a replaced goal: any reading of it is an error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise EnvError(
            f"her: {self._what} reads info, which the replay does not keep. Compute the reward "
            "from the goals alone (what else it needs can be a part of achieved_goal)."
        )

    __getitem__ = __contains__ = __iter__ = __len__ = _refuse
    get = keys = values = items = _refuse


class Batched:
    """compute_reward or compute_terminated of an env, for batches of goals."""

    def __init__(self, function: Callable[..., Any], dtype: Any, what: str) -> None:
        self._function, self._dtype, self._what = function, dtype, what
        self._info = NoInfo(what)
        self._takes_batches: bool | None = None  # unknown before the first batch

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        if self._takes_batches is None and len(achieved) > 1:
            few = slice(COMPARED_ROWS)
            self._takes_batches = self._agrees(achieved[few], desired[few])
        if self._takes_batches:
            return np.asarray(self._call(achieved, desired), self._dtype)
        return self._by_rows(achieved, desired)

    def _call(self, achieved: np.ndarray, desired: np.ndarray) -> Any:
        with explained(f"her: {self._what} raised"):
            return self._function(achieved, desired, self._info)

    def _agrees(self, achieved: np.ndarray, desired: np.ndarray) -> bool:
        """Whether a batch gives what its rows give."""
        rows = self._by_rows(achieved, desired)
        try:
            batch = np.asarray(self._function(achieved, desired, self._info))
        except EnvError:
            raise
        except Exception:  # whatever a function of a single pair raises for a batch
            return False
        return batch.shape == rows.shape and np.allclose(batch, rows, rtol=1e-4)

    def _by_rows(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        found = [self._call(*pair) for pair in zip(achieved, desired, strict=True)]
        try:
            return np.array(found, self._dtype).reshape(len(found))
        except (ValueError, TypeError):
            raise EnvError(
                f"her: {self._what} returned {str(found[0])[:80]!r} for one pair of goals, "
                "expected a number."
            ) from None


def successes(info: Mapping[str, Any], n_envs: int) -> np.ndarray | None:
    """bool[N]: what the info of a step says about success; None where it says nothing."""
    for key in ("is_success", "success"):
        if key not in info:
            continue
        reported = np.asarray(info[key])
        if reported.dtype == object and all(
            isinstance(value, _REPORTED) for value in reported.ravel()
        ):
            reported = np.array([bool(value) for value in reported.ravel()])
        if reported.shape == (n_envs,) and reported.dtype.kind in "biuf":
            return reported > 0
    return None


# -- rewards by distance --------------------------------------------------------------------------


def distance_reward(reward_type: str, threshold: float) -> GoalFunction:
    """-1 farther than the threshold, else 0; `dense`: minus the distance."""
    if reward_type == "dense":
        return lambda achieved, desired: -_distance(achieved, desired)
    return lambda achieved, desired: -(_distance(achieved, desired) > threshold).astype(np.float32)


def nearness_reward(reward_type: str, threshold: float) -> GoalFunction:
    """1 within the threshold, else 0; `dense`: exp(-distance)."""
    if reward_type == "dense":
        return lambda achieved, desired: np.exp(-_distance(achieved, desired))
    return lambda achieved, desired: is_near(threshold)(achieved, desired).astype(np.float32)


def is_near(threshold: float) -> GoalFunction:
    """Whether the goal is within the threshold."""
    return lambda achieved, desired: _distance(achieved, desired) <= threshold


def _distance(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    gap = achieved - desired
    return np.sqrt(np.einsum("...i,...i->...", gap, gap))


# -- EnvPool's goal environments ------------------------------------------------------------------

# EnvPool computes rewards in C++ and offers no `compute_reward`, so the formulas of
# Gymnasium-Robotics are written here again, with the settings of the pool. Tests compare them with
# the rewards that the pools give. The HandManipulate tasks (rotations of objects) are left out.
MAZE_THRESHOLD = 0.45


def pool_goals(pool_id: str, config: Any) -> GoalFunctions | None:
    """The functions of a pool with these settings; None if its reward is not known here."""
    if pool_id.startswith(("Fetch", "HandReach")):
        return GoalFunctions(distance_reward(config.reward_type, config.distance_threshold))
    # With reset_target the reward is that of the goal drawn at the same step.
    if not pool_id.startswith("PointMaze_") or config.reset_target:
        return None
    reward = nearness_reward(config.reward_type, MAZE_THRESHOLD)
    return GoalFunctions(reward, None if config.continuing_task else is_near(MAZE_THRESHOLD))
