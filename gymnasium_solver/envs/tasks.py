"""Several tasks in one vector env: other ids or other arguments, with the same spaces.

    env = TaskEnv([one, two], ["easy", "hard"], one_hot=True)
    env.spec.tasks                                # names and thresholds
    task_rows(2, env.n_envs)                      # which task each row is of

The rows are shared out evenly, task by task. `one_hot` tells the policy the task: beside a vector
of real numbers in the same array, beside anything else as a part of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.joined import JoinedEnv
from gymnasium_solver.envs.spec import TaskFacts
from gymnasium_solver.envs.vector import Space, Step, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import part_spaces

OBS, TASK = "obs", "task"  # parts, where the observation itself has none


class TaskEnv(JoinedEnv):
    def __init__(
        self,
        envs: Sequence[VectorEnv],
        names: Sequence[str],
        thresholds: Sequence[float | None],
        one_hot: bool,
    ) -> None:
        """Closed by the caller if this raises. `names` and `thresholds` are those of all tasks;
        with fewer envs than tasks, only the first ones are played."""
        super().__init__(envs)
        for env, name in zip(envs, names, strict=False):
            _check_same(self.envs[0], names[0], env, name)
        space = _widest([env.observation_space for env in self.envs])
        self.observation_space = space
        self._how = "none"
        if one_hot:
            self._how = "array" if _is_vector(space) else "part"
            self.observation_space = _with_task(space, len(names))
        rows = np.repeat(np.arange(len(self.envs)), np.diff(self.first_rows))
        self._task = np.eye(len(names), dtype=np.float32)[rows]
        specs = [env.spec for env in self.envs]
        limits = [spec.max_episode_steps for spec in specs]
        own = [spec.reward_threshold for spec in specs]
        own += [None] * (len(names) - len(own))
        facts = tuple(
            TaskFacts(name, given if given is not None else registered)
            for name, given, registered in zip(names, thresholds, own, strict=True)
        )
        judged = [task.threshold for task in facts]
        self.spec = replace(
            specs[0],
            max_episode_steps=None if None in limits else max(x for x in limits if x is not None),
            reward_threshold=None if None in judged else float(np.mean(judged)),  # type: ignore[arg-type]
            notes=tuple(dict.fromkeys(note for spec in specs for note in spec.notes)),
            tasks=facts,
        )

    def reset(self, seed: int) -> Any:
        return self._obs_with_task(super().reset(seed))

    def step(self, actions: Any) -> Step:
        step = super().step(actions)
        return step._replace(obs=self._obs_with_task(step.obs))

    def _obs_with_task(self, obs: Any) -> Any:
        if self._how == "array":
            return np.concatenate([obs, self._task], axis=1)
        if self._how == "part":
            return {**(obs if isinstance(obs, dict) else {OBS: obs}), TASK: self._task}
        return obs


def _check_same(first: VectorEnv, first_name: str, env: VectorEnv, name: str) -> None:
    """EnvError unless a task has the spaces of the first one."""
    if not _same_layout(first.observation_space, env.observation_space):
        raise _differ(
            "observations", first_name, first.observation_space, name, env.observation_space
        )
    if first.action_space != env.action_space:
        raise _differ("actions", first_name, first.action_space, name, env.action_space)


def _differ(kind: str, first_name: str, first: Space, name: str, own: Space) -> EnvError:
    shown = [" ".join(str(space).split()) for space in (first, own)]
    return EnvError(
        f"tasks: {first_name} has the {kind} {shown[0]}, {name} has {shown[1]}; all tasks need the "
        "same spaces."
    )


def _same_layout(one: Space, two: Space) -> bool:
    """Whether an observation of the one has the form of the other; bounds may differ."""
    first, second = part_spaces(one), part_spaces(two)
    return list(first) == list(second) and all(
        _form(part) == _form(second[name]) for name, part in first.items()
    )


def _form(part: Space) -> Any:
    is_box = isinstance(part, gymnasium.spaces.Box)
    return (part.shape, part.dtype) if is_box else part


def _widest(spaces: Sequence[Space]) -> Space:
    """The first space, with bounds that hold all of them."""
    if isinstance(spaces[0], gymnasium.spaces.Dict):
        return gymnasium.spaces.Dict(
            [(name, _widest([space[name] for space in spaces])) for name in spaces[0].spaces]  # type: ignore[index]
        )
    if isinstance(spaces[0], gymnasium.spaces.Box):
        boxes: list[Any] = list(spaces)
        low = np.min([box.low for box in boxes], axis=0)
        high = np.max([box.high for box in boxes], axis=0)
        return gymnasium.spaces.Box(low, high, dtype=boxes[0].dtype)
    return spaces[0]


def _is_vector(space: Space) -> bool:
    is_box = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
    return is_box and space.dtype == np.float32


def _with_task(space: Any, n_tasks: int) -> Space:
    one_hot = gymnasium.spaces.Box(0.0, 1.0, (n_tasks,), np.float32)
    if _is_vector(space):
        low = np.concatenate([space.low, one_hot.low])
        return gymnasium.spaces.Box(low, np.concatenate([space.high, one_hot.high]))
    if not isinstance(space, gymnasium.spaces.Dict):
        return gymnasium.spaces.Dict([(OBS, space), (TASK, one_hot)])
    if TASK in space.spaces:
        raise EnvError(f"task_one_hot: the observation has a part {TASK!r} already.")
    return gymnasium.spaces.Dict([*space.spaces.items(), (TASK, one_hot)])
