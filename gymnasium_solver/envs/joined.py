"""Several vector envs as one: their rows one after another, with the spaces of the first one.

env = JoinedEnv([make(8), make(8)])                 # 16 envs; each reset with its own seed
env.first_rows                                      # where each of them begins: [0, 8, 16]
env = GroupedEnv([make(8) for _ in range(4)])       # copies that start alike, 8 groups of 4
env = TaskEnv([one, two], ["easy", "hard"], [None, 1.0], one_hot=True)    # several tasks
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.spec import TaskFacts
from gymnasium_solver.envs.vector import Info, Step, VectorEnv, env_seeds
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import (
    GoalFunctions,
    join_obs,
    layout,
    part_spaces,
    space_of,
)
from gymnasium_solver.spaces.space_types import Space, is_box, is_dict, shown

OBS, TASK = "obs", "task"  # parts, where the observation itself has none


class JoinedEnv(VectorEnv):
    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        self.envs = list(envs)
        first = self.envs[0]
        self._sizes = [env.n_envs for env in self.envs]
        self.first_rows = np.cumsum([0, *self._sizes])
        self.n_envs = int(self.first_rows[-1])
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.spec = first.spec

    def seeds(self, seed: int) -> list[int]:
        """The seed of each environment."""
        return env_seeds(seed, len(self.envs))

    @property
    def action_mask(self) -> np.ndarray | None:
        masks = [env.action_mask for env in self.envs]
        width = next((mask.shape[1] for mask in masks if mask is not None), None)
        if width is None:
            return None
        legal = [np.ones((env.n_envs, width), bool) for env in self.envs]
        pairs = zip(masks, legal, strict=True)
        return np.concatenate([every if mask is None else mask for mask, every in pairs])

    @property
    def info(self) -> Info:
        return _joined_info([env.info for env in self.envs], self._sizes)

    def reset(self, seed: int) -> Any:
        seeds = zip(self.envs, self.seeds(seed), strict=True)
        return join_obs(np.concatenate, [env.reset(own) for env, own in seeds])

    def step(self, actions: Any) -> Step:
        parts = np.split(np.asarray(actions), self.first_rows[1:-1])
        steps = [env.step(part) for env, part in zip(self.envs, parts, strict=True)]
        *columns, infos = zip(*steps, strict=True)
        joined = [join_obs(np.concatenate, column) for column in columns]
        return Step(*[*joined, _joined_info(infos, self._sizes)])

    def goal_functions(self) -> GoalFunctions:
        return self.envs[0].goal_functions()

    def render(self, env_index: int = 0) -> np.ndarray | None:
        which = int(np.searchsorted(self.first_rows, env_index, side="right")) - 1
        return self.envs[which].render(env_index - int(self.first_rows[which]))

    def close(self) -> None:
        for env in self.envs:
            env.close()


def _joined_info(infos: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Info:
    """The entries that every environment has with one value per row; others are dropped."""
    found: dict[str, Any] = {}
    for name, value in infos[0].items():
        parts: list[Any] = [info.get(name) for info in infos]
        if isinstance(value, Mapping):
            if all(isinstance(part, Mapping) for part in parts):
                found[name] = _joined_info(parts, sizes)
        elif all(
            isinstance(part, np.ndarray) and part.shape[:1] == (n,)
            for part, n in zip(parts, sizes, strict=True)
        ):
            found[name] = np.concatenate(parts)
    return found


class GroupedEnv(JoinedEnv):
    """Copies that are all reset with the same seed, for leave-one-out baselines (REINFORCE,
    `baseline: rloo`).

    Env i is row i % n_groups of copy i // n_groups; its group is i % n_groups. After a reset the
    envs of a group are in the same state. Later episodes of a group start alike only where each env
    has a random stream of its own and draws from it in resets alone; an env vectorised with one
    stream for all rows shares only the first episode."""

    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        super().__init__(envs)
        self.n_groups = self.envs[0].n_envs

    def seeds(self, seed: int) -> list[int]:
        return [seed] * len(self.envs)


class TaskEnv(JoinedEnv):
    """Several tasks: other ids or other arguments, with the same spaces, which share the rows task
    by task (`task_rows` of spec.py). `one_hot` tells the policy the task: next to a vector of real
    numbers in the same array, next to anything else as a part of its own."""

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
            if found := difference(self.envs[0], names[0], env, name):
                raise EnvError(f"tasks: {found}; all tasks need the same spaces.")
        space = _widest([env.observation_space for env in self.envs])
        self._in_array = _is_vector(space)
        self.observation_space = _with_task(space, len(names)) if one_hot else space
        rows = np.repeat(np.arange(len(self.envs)), np.diff(self.first_rows))
        self._task = np.eye(len(names), dtype=np.float32)[rows] if one_hot else None
        specs = [env.spec for env in self.envs]
        limits = [spec.max_episode_steps for spec in specs]
        own = [spec.reward_threshold for spec in specs]
        own += [None] * (len(names) - len(own))
        judged = [o if t is None else t for t, o in zip(thresholds, own, strict=True)]
        self.spec = replace(
            specs[0],
            max_episode_steps=None if None in limits else max(x for x in limits if x is not None),
            reward_threshold=None if None in judged else float(np.mean(judged)),  # type: ignore[arg-type]
            notes=tuple(dict.fromkeys(note for spec in specs for note in spec.notes)),
            tasks=tuple(map(TaskFacts, names, judged)),
        )

    def reset(self, seed: int) -> Any:
        return self._obs_with_task(super().reset(seed))

    def step(self, actions: Any) -> Step:
        step = super().step(actions)
        return step._replace(obs=self._obs_with_task(step.obs))

    def _obs_with_task(self, obs: Any) -> Any:
        if self._task is None:
            return obs
        if self._in_array:
            return np.concatenate([obs, self._task], axis=1)
        return {**(obs if isinstance(obs, dict) else {OBS: obs}), TASK: self._task}


def difference(env: VectorEnv, name: str, other: VectorEnv, other_name: str) -> str | None:
    """What differs in the spaces of two envs, in words; bounds of observations may."""
    seen = env.observation_space, other.observation_space
    acts = env.action_space, other.action_space
    for kind, pair, is_same in (
        ("observations", seen, layout(seen[0]) == layout(seen[1])),
        ("actions", acts, acts[0] == acts[1]),
    ):
        if not is_same:
            own, theirs = map(shown, pair)
            return f"{name} has the {kind} {own}, {other_name} has {theirs}"
    return None


def _widest(spaces: Sequence[Any]) -> Space:
    """The first space, with bounds that hold all of them."""
    if is_dict(spaces[0]):
        names = part_spaces(spaces[0])
        return space_of({name: _widest([space[name] for space in spaces]) for name in names})
    if is_box(spaces[0]):
        low = np.min([box.low for box in spaces], axis=0)
        high = np.max([box.high for box in spaces], axis=0)
        return gymnasium.spaces.Box(low, high, dtype=spaces[0].dtype.type)
    widest: Space = spaces[0]
    return widest


def _is_vector(space: Space) -> bool:
    return is_box(space) and len(space.shape) == 1 and space.dtype == np.float32


def _with_task(space: Any, n_tasks: int) -> Space:
    one_hot = gymnasium.spaces.Box(0.0, 1.0, (n_tasks,), np.float32)
    if _is_vector(space):
        low = np.concatenate([space.low, one_hot.low])
        return gymnasium.spaces.Box(low, np.concatenate([space.high, one_hot.high]))
    parts = {name or OBS: part for name, part in part_spaces(space).items()}
    if TASK in parts:
        raise EnvError(f"task_one_hot: the observation has a part {TASK!r} already.")
    return space_of({**parts, TASK: one_hot})
