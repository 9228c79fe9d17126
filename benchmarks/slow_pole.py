"""CartPole that takes a stated time per step without using the CPU, like a simulator elsewhere.

env_id: benchmarks.slow_pole:SlowPole-v0
env_kwargs: {step_s: 0.002}
"""

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class SlowPole(CartPoleEnv):
    def __init__(self, step_s: float = 0.002, **options: Any) -> None:
        super().__init__(**options)
        self.step_s = step_s

    def step(self, action: Any) -> Any:
        time.sleep(self.step_s)
        return super().step(action)


gymnasium.register(
    id="SlowPole-v0", entry_point=SlowPole, max_episode_steps=500, reward_threshold=475.0
)
