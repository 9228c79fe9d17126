"""Frame skipping inside EnvPool's engine: only the envs that are not done yet are stepped.

Repeating the action for the whole batch would be wrong: under NEXT_STEP autoreset an env that ends
at the second frame would be reset at the third, and the first frames of its new episode would get
an old action. Stopping the skip for all envs would make an env's dynamics depend on the others. A
pool can step a part of its envs, so rows that are done, or that were just reset, wait.
"""

from typing import Any

import numpy as np

from gymnasium_solver.envs.engines.envpool import EnvPoolEngine
from gymnasium_solver.envs.vector import Info, RawStep
from gymnasium_solver.envs.wrappers.lowered import skip_generator
from gymnasium_solver.spaces.observations import Obs, map_obs, put_rows


class SkippingPool(EnvPoolEngine):
    """An EnvPool whose step is one action held for several frames."""

    def __init__(self, env_id: str, n_envs: int, skip: tuple[int, int], **given: Any) -> None:
        super().__init__(env_id, n_envs, **given)
        self._skip = skip
        self._rng = skip_generator(0)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._rng = skip_generator(seed)
        return super()._reset(seed)

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        low, high = self._skip
        n_frames = self._rng.integers(low, high + 1, self.n_envs)
        obs, reward, terminated, truncated, info = super()._step(actions, is_reset, n_reset)
        actions = actions.astype(self._action_dtype, copy=False)
        obs, truncated = map_obs(np.array, obs), np.array(truncated)
        for frame in range(1, high):
            waits = terminated | truncated | is_reset | (n_frames <= frame)
            rows = self._ids[~waits]
            if not len(rows):
                break
            self._pool._send([rows, rows, actions[rows]])
            state = self._pool._recv()
            put_rows(obs, rows, self._read(state))
            reward[rows] += state[self._reward_at]
            terminated[rows] = state[self._done_at] > state[self._trunc_at]
            truncated[rows] = state[self._trunc_at]
            if self._limit is not None:
                self._cut[rows] = state[self._elapsed_at] >= self._limit
                truncated |= self._cut
            for name, i in self._info_at:
                info[name][rows] = state[i]
        self._n_cut = int(np.count_nonzero(self._cut))
        return obs, reward, terminated, truncated, info
