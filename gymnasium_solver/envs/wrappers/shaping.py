"""Wrappers that scale and clip the reward a learner sees, and the base of reward shapers: rewards
in named parts, kept apart from the true reward.

A shaper adds its parts to the reward that the learner sees. `episode_return`, and with it every
score, stays the environment's own. `Step.info` has

    info["reward_parts"]           {part: float32[N]}: what each part added at this step
    info["episode_reward_parts"]   {part: float64[N]}: its running sum over the episode, this step
                                   included; final where done, 0 at reset rows

and a run logs the means of the latter as `train/roll/ep_part/<part>/mean`. Parts are as the shaper
made them: a RewardScale or RewardClip around it does not change them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.options import require, require_discrete

PARTS = "reward_parts"
EPISODE_PARTS = "episode_reward_parts"
Parts = dict[str, np.ndarray]


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


class RewardShaper(VectorWrapper):
    """Adds the parts that a subclass works out; nothing is added at reset rows."""

    effect = "none"
    keeps_reward: ClassVar[bool] = True
    """False where the parts take the place of the env's reward."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self._sums: Parts = {}

    def open(self, obs: np.ndarray) -> None:
        """Set all state from the first observations."""

    @abstractmethod
    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        """{part: float32[N]}, fresh arrays; reset rows are overruled. A reset row opens an episode:
        state kept for it must be set from `step.obs` alone."""

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._sums = {}
        self.open(obs)
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        parts = self.parts(np.asarray(actions), step)
        total = np.zeros(self.n_envs, np.float32)
        for name, part in parts.items():
            part[step.is_reset] = 0.0
            total += part
            running = self._sums.get(name, 0.0) + part.astype(np.float64)
            running[step.is_reset] = 0.0
            self._sums[name] = running
        info = {
            **step.info,
            PARTS: _added(step.info.get(PARTS, {}), parts),
            EPISODE_PARTS: _added(step.info.get(EPISODE_PARTS, {}), self._sums),
            "shaping_reward": step.info.get("shaping_reward", 0.0) + total,
        }
        return step._replace(reward=step.reward + total if self.keeps_reward else total, info=info)


def _added(inner: Mapping[str, np.ndarray], own: Parts) -> Parts:
    """Parts of the shapers within and of this one; those of the same name are added up."""
    return {**inner, **{name: inner.get(name, 0.0) + part for name, part in own.items()}}


class PotentialShaper(RewardShaper):
    """Adds gamma * P(next obs) - P(obs) for a potential P, in named parts. P = 0 once an episode
    has terminated.

    The discounted sum over an episode that terminates is -P(first obs) whatever was done in between
    (Ng et al. 1999), so the best policy stays the best. This holds if `gamma` is the discount that
    the learner uses, which is what a config's wrappers get unless they name another."""

    names: ClassVar[tuple[str, ...]]

    def __init__(self, env: VectorEnv, gamma: float = 0.99) -> None:
        super().__init__(env)
        require(0.0 <= gamma <= 1.0, type(self).__name__, f"gamma must be 0 to 1, got {gamma}")
        self._gamma = np.float32(gamma)

    @abstractmethod
    def potentials(self, obs: np.ndarray) -> np.ndarray:
        """float32[N, parts], a fresh array."""

    def open(self, obs: np.ndarray) -> None:
        self._before = self.potentials(obs)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        now = self.potentials(step.obs)
        now[step.terminated] = 0.0
        change, self._before = self._gamma * now - self._before, now
        return {name: change[:, i].copy() for i, name in enumerate(self.names)}


class ActionRewardShaper(RewardShaper):
    """Adds `rewards[a]` whenever action a is taken (Discrete actions, one number for each). Part:
    action_reward_bonus."""

    def __init__(self, env: VectorEnv, rewards: list[float]) -> None:
        super().__init__(env)
        name = "ActionRewardShaper"
        space = require_discrete(env, name)
        n, start = int(space.n), int(space.start)
        expected = f"rewards must have {n} numbers, one for each action, got {len(rewards)}"
        require(len(rewards) == n, name, expected)
        self._start, self._rewards = start, np.array(rewards, np.float32)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        return {"action_reward_bonus": self._rewards[actions - self._start]}
