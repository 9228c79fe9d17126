"""Copies of a vector env that are all reset with the same seed, as one vector env.

    env = GroupedEnv([make(8) for _ in range(4)])       # 32 envs in 8 groups of 4

Env i is row i % 8 of copy i // 8; its group is i % 8. After a reset the envs of a group are in the
same state. Later episodes of a group start alike only where each env has a random stream of its own
and draws from it in resets alone; an env vectorised with one stream for all rows shares only the
first episode. Used for leave-one-out baselines (REINFORCE, `baseline: rloo`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import Info, Step, VectorEnv
from gymnasium_solver.spaces.goals import GoalFunctions


class GroupedEnv(VectorEnv):
    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        self.envs = list(envs)
        first = self.envs[0]
        self.n_groups = first.n_envs
        self.n_envs = sum(env.n_envs for env in self.envs)
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.spec = first.spec

    @property
    def action_mask(self) -> np.ndarray | None:
        masks = [env.action_mask for env in self.envs]
        return None if masks[0] is None else np.concatenate([m for m in masks if m is not None])

    @property
    def info(self) -> Info:
        return _joined_info([env.info for env in self.envs], self.n_groups)

    def reset(self, seed: int) -> Any:
        return _joined([env.reset(seed) for env in self.envs])

    def step(self, actions: Any) -> Step:
        parts = np.split(np.asarray(actions), len(self.envs))
        steps = [env.step(part) for env, part in zip(self.envs, parts, strict=True)]
        columns = {
            name: _joined([getattr(step, name) for step in steps])
            for name in Step._fields
            if name != "info"
        }
        info = _joined_info([step.info for step in steps], self.n_groups)
        return Step(**columns, info=info)

    def goal_functions(self) -> GoalFunctions:
        return self.envs[0].goal_functions()

    def render(self, env_index: int = 0) -> np.ndarray | None:
        copy, row = divmod(env_index, self.n_groups)
        return self.envs[copy].render(row)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


def _joined_info(infos: Sequence[Mapping[str, Any]], n: int) -> Info:
    """The entries that every copy has with one value per env; others are dropped."""
    joined: dict[str, Any] = {}
    for name, value in infos[0].items():
        parts = [info.get(name) for info in infos]
        if isinstance(value, Mapping):
            if all(isinstance(part, Mapping) for part in parts):
                joined[name] = _joined_info(parts, n)  # type: ignore[arg-type]
        elif all(isinstance(part, np.ndarray) and part.shape[:1] == (n,) for part in parts):
            joined[name] = np.concatenate(parts)  # type: ignore[arg-type]
    return joined
