"""Tasks of the DeepMind Control Suite as Gymnasium environments, for libraries that do not know
them: EnvPool's, as `gsolve` trains them, with the parts of an observation in one array.

    gymnasium.make("benchmarks.peers.dmc_tasks:WalkerWalk-v1")
"""

from functools import partial
from typing import Any

import envpool
import gymnasium
import numpy as np
from gymnasium import spaces

TASKS = ("CartpoleSwingup-v1", "WalkerWalk-v1")
LIMIT = 1000


class Alone(gymnasium.Env[Any, Any]):
    """An EnvPool of one copy, made at the first reset: only then its seed is known."""

    def __init__(self, task: str, **_: Any) -> None:
        self.task = task
        self.pool: Any = None
        known = envpool.make_gymnasium(task, num_envs=1)
        box: Any = known.action_space
        self.action_space = spaces.Box(
            box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32
        )
        n_numbers = spaces.flatdim(known.observation_space)
        self.observation_space = spaces.Box(-np.inf, np.inf, (n_numbers,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.pool is None or seed is not None:
            pool_seed = int(self.np_random.integers(2**31))
            self.pool = envpool.make_gymnasium(self.task, num_envs=1, seed=pool_seed)
        obs, _ = self.pool.reset()
        return self._flat(obs), {}

    def step(self, action: Any) -> Any:
        action = np.asarray(action, np.float64)
        obs, reward, terminated, truncated, _ = self.pool.step(action[None])
        return self._flat(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def _flat(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        parts = [np.ravel(obs[name]) for name in self.pool.observation_space]
        return np.concatenate(parts).astype(np.float32)


for _task in TASKS:
    if _task not in gymnasium.registry:
        entry: Any = partial(Alone, _task)
        gymnasium.register(_task, entry, max_episode_steps=LIMIT)
