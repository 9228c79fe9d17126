"""Several vector envs as one: their rows one after another.

    env = JoinedEnv([make(8), make(8)])                 # 16 envs; each reset with its own seed
    env.first_rows                                      # where each of them begins: [0, 8, 16]

The environments may differ (several tasks), or be copies (grouped.py). They have the spaces of the
first one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import Info, Step, VectorEnv
from gymnasium_solver.spaces.goals import GoalFunctions


class JoinedEnv(VectorEnv):
    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        self.envs = list(envs)
        first = self.envs[0]
        self.first_rows = np.cumsum([0, *(env.n_envs for env in self.envs)])
        self.n_envs = int(self.first_rows[-1])
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.spec = first.spec

    def seeds(self, seed: int) -> list[int]:
        """The seed of each environment."""
        return [int(s) for s in np.random.SeedSequence(seed).generate_state(len(self.envs)) >> 1]

    @property
    def action_mask(self) -> np.ndarray | None:
        masks = [env.action_mask for env in self.envs]
        width = next((mask.shape[1] for mask in masks if mask is not None), None)
        if width is None:
            return None
        return np.concatenate(
            [
                np.ones((env.n_envs, width), bool) if mask is None else mask
                for env, mask in zip(self.envs, masks, strict=True)
            ]
        )

    @property
    def info(self) -> Info:
        return self._joined_info([env.info for env in self.envs])

    def reset(self, seed: int) -> Any:
        seeds = zip(self.envs, self.seeds(seed), strict=True)
        return joined([env.reset(own) for env, own in seeds])

    def step(self, actions: Any) -> Step:
        parts = np.split(np.asarray(actions), self.first_rows[1:-1])
        return self.join([env.step(part) for env, part in zip(self.envs, parts, strict=True)])

    def join(self, steps: Sequence[Step]) -> Step:
        """A step of each environment as one."""
        columns: dict[str, Any] = {
            name: joined([getattr(step, name) for step in steps])
            for name in Step._fields
            if name != "info"
        }
        return Step(**columns, info=self._joined_info([step.info for step in steps]))

    def goal_functions(self) -> GoalFunctions:
        return self.envs[0].goal_functions()

    def render(self, env_index: int = 0) -> np.ndarray | None:
        which = int(np.searchsorted(self.first_rows, env_index, side="right")) - 1
        return self.envs[which].render(env_index - int(self.first_rows[which]))

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _joined_info(self, infos: Sequence[Mapping[str, Any]]) -> Info:
        """The entries that every environment has with one value per row; others are dropped."""
        return _joined_info(infos, [env.n_envs for env in self.envs])


def joined(parts: Sequence[Any]) -> Any:
    """Batches one after another; of observations in parts, part by part."""
    if isinstance(parts[0], dict):
        return {name: joined([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


def _joined_info(infos: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Info:
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
