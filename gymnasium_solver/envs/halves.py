"""Two halves of the environments, each of which is stepped in a thread of its own.

    env = HalvedEnv([make(8), make(8)])
    env.begin(0, actions)                               # returns at once
    step = env.end(0)                                   # waits for the step

An engine that steps outside Python (EnvPool, processes) works while this process computes the
actions of the other half. Results do not depend on timing: a half sees its own actions only.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from gymnasium_solver.envs.joined import JoinedEnv
from gymnasium_solver.envs.vector import Step, VectorEnv


class HalvedEnv(JoinedEnv):
    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        super().__init__(envs)
        self.rows = [slice(*pair) for pair in pairwise(self.first_rows.tolist())]
        self._threads = [ThreadPoolExecutor(1, "envs") for _ in self.envs]
        self._begun: dict[int, Future[Step]] = {}

    def begin(self, half: int, actions: np.ndarray) -> None:
        """Start a step of one half."""
        self._begun[half] = self._threads[half].submit(self.envs[half].step, actions)

    def end(self, half: int) -> Step:
        """The step of this half, once it is done."""
        return self._begun.pop(half).result()

    def reset(self, seed: int) -> Any:
        self._settle()
        return super().reset(seed)

    def step(self, actions: Any) -> Step:
        for half, rows in enumerate(self.rows):
            self.begin(half, np.asarray(actions)[rows])
        return self.join([self.end(half) for half in range(len(self.envs))])

    def close(self) -> None:
        self._settle()
        for thread in self._threads:
            thread.shutdown()
        super().close()

    def _settle(self) -> None:
        """Wait for steps that nobody will ask for, as after an error in the other half."""
        for future in self._begun.values():
            future.exception()
        self._begun.clear()
