"""Wrappers that change the reward a learner sees. `episode_return` stays the raw score, always."""

from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError


class RewardScale(VectorWrapper):
    """Multiplies rewards by `scale`."""

    def __init__(self, env: VectorEnv, scale: float) -> None:
        super().__init__(env)
        _check_number("RewardScale", "scale", scale)
        self._scale = np.float32(scale)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(reward=step.reward * self._scale)


class RewardClip(VectorWrapper):
    """Clips rewards to [low, high]."""

    def __init__(self, env: VectorEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        _check_number("RewardClip", "low", low)
        _check_number("RewardClip", "high", high)
        if low > high:
            raise EnvError(f"Wrapper RewardClip: low {low} is above high {high}.")
        self._low, self._high = np.float32(low), np.float32(high)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        reward = np.minimum(np.maximum(step.reward, self._low), self._high)
        reward[step.is_reset] = 0.0  # 0 may lie outside the bounds
        return step._replace(reward=reward)


class CartPoleRewardShaper(VectorWrapper):
    """CartPole-v1: pays for bringing the pole upright and the cart to the middle.

    Potential-based: adds P(next obs) - P(obs), where P = angle_reward_scale * (1 - |angle| / 12°)
    + position_reward_scale * (1 - |position| / 2.4), and P = 0 once the episode has terminated.
    Over an episode that falls the sum is -P(first obs), whatever was done in between, so it speeds
    up learning without changing which policy scores best. `clip_potential` keeps both terms >= 0.
    The amount added is in info["shaping_reward"].
    """

    def __init__(
        self,
        env: VectorEnv,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 1.0,
        clip_potential: bool = True,
    ) -> None:
        super().__init__(env)
        if not env.spec.env_id.startswith("CartPole-"):
            raise EnvError(
                f"Wrapper CartPoleV1_RewardShaper is for CartPole, not {env.spec.env_id}."
            )
        name = "CartPoleV1_RewardShaper"
        _check_number(name, "angle_reward_scale", angle_reward_scale)
        _check_number(name, "position_reward_scale", position_reward_scale)
        self._scales = np.array([position_reward_scale, angle_reward_scale], np.float32)
        self._clip = clip_potential
        self._potential = np.zeros(env.n_envs, np.float32)

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._potential = self._potential_of(obs)
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        potential = self._potential_of(step.obs)
        potential[step.terminated] = 0.0
        shaping = potential - self._potential
        shaping[step.is_reset] = 0.0  # a reset row joins two episodes
        self._potential = potential
        info = {**step.info, "shaping_reward": shaping}
        return step._replace(reward=step.reward + shaping, info=info)

    def _potential_of(self, obs: np.ndarray) -> np.ndarray:
        # Columns 0 and 2: cart position, pole angle; over the values at which the episode ends.
        closeness = 1.0 - np.abs(obs[:, ::2]) / np.array([2.4, np.deg2rad(12)], np.float32)
        if self._clip:
            closeness = np.maximum(closeness, 0.0)
        potential: np.ndarray = closeness @ self._scales
        return potential


def _check_number(wrapper: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise EnvError(f"Wrapper {wrapper}: {name} must be a finite number, got {value!r}.")
