"""Environments with something wrong, to see that it raises an alert (alerts_ill.py).

benchmarks.alert_envs:Constant-v0    every step gives the same reward
benchmarks.alert_envs:Outside-v0     observations leave the bounds of their space
benchmarks.alert_envs:Nan-v0         an observation is NaN after a while
benchmarks.alert_envs:Mixed-v0       rewards a change of action, so a sure policy gets none
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 10


class _Small(gymnasium.Env[np.ndarray, np.int64]):
    """Two actions, two random numbers to see, episodes of ten steps."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    scale = 1.0

    def __init__(self, **kwargs: Any) -> None:
        self.t = self.n_steps = 0
        self.last: int | None = None

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.last = 0, None
        return self.see(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t, self.n_steps = self.t + 1, self.n_steps + 1
        reward, self.last = self.reward(int(action)), int(action)
        return self.see(), reward, False, self.t >= LENGTH, {}

    def see(self) -> np.ndarray:
        return (self.scale * self.np_random.uniform(-1, 1, 2)).astype(np.float32)

    def reward(self, action: int) -> float:
        return 1.0


class Constant(_Small):
    pass


class Outside(_Small):
    scale = 3.0

    def reward(self, action: int) -> float:
        return float(action)


class Nan(_Small):
    def see(self) -> np.ndarray:
        seen = super().see()
        return seen if self.n_steps < 300 else seen * np.float32(np.nan)


class Mixed(_Small):
    scale = 0.0  # nothing to see: a policy can only mix its actions

    def reward(self, action: int) -> float:
        return float(action != self.last)


for kind in (Constant, Outside, Nan, Mixed):
    env_id = f"{kind.__name__}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point=kind, disable_env_checker=True)
