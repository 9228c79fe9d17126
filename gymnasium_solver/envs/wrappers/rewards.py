"""Wrappers that scale and clip the reward a learner sees. `episode_return` stays the raw score."""

from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.parameters import require


class RewardScale(VectorWrapper):
    """Multiplies rewards by `scale`."""

    effect = "none"

    def __init__(self, env: VectorEnv, scale: float) -> None:
        super().__init__(env)
        self._scale = np.float32(scale)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(reward=step.reward * self._scale)


class RewardClip(VectorWrapper):
    """Clips rewards to [low, high]."""

    effect = "none"

    def __init__(self, env: VectorEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        require(low <= high, "RewardClip", f"low {low} is above high {high}")
        self._low, self._high = np.float32(low), np.float32(high)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        reward = np.minimum(np.maximum(step.reward, self._low), self._high)
        reward[step.is_reset] = 0.0  # 0 may lie outside the bounds
        return step._replace(reward=reward)
