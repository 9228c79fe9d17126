"""Classics in other units, one with hidden state, and small tasks for benchmarks/auto.py and its
tests.

    gymnasium.make("benchmarks.auto_tasks:CartPole-obs_x1000-v0")
    gymnasium.make("benchmarks.auto_tasks:CartPole-no_velocity-v0")
    gymnasium.make("benchmarks.auto_tasks:Recall-v0")

A mutation changes nothing that matters: who measures an environment should choose the same for it.
Recall and TMaze need memory, and their observations have noise, so that none is met twice; Chain
has a small reward near and a large one far away.
They need only Gymnasium and NumPy, so that every library can make them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

CLASSICS = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1", "MountainCar": "MountainCar-v0"}
N_NOISE = 64
LARGE = 1000.0


def small_rewards(env: gymnasium.Env) -> gymnasium.Env:
    return wrappers.TransformReward(env, lambda reward: 0.001 * float(reward))


def shifted_rewards(env: gymnasium.Env) -> gymnasium.Env:
    return wrappers.TransformReward(env, lambda reward: 1000.0 * float(reward) + 500.0)


def large_observations(env: gymnasium.Env) -> gymnasium.Env:
    box: Any = env.observation_space
    ends = (np.clip(LARGE * end.astype(np.float64), -3e38, 3e38) for end in (box.low, box.high))
    low, high = (end.astype(np.float32) for end in ends)
    space = spaces.Box(low, high, dtype=np.float32)
    return wrappers.TransformObservation(env, lambda obs: np.float32(LARGE) * obs, space)


def permuted_observations(env: gymnasium.Env) -> gymnasium.Env:
    box: Any = env.observation_space
    order = np.arange(box.shape[0])[::-1].copy()
    space = spaces.Box(box.low[order], box.high[order], dtype=np.float32)
    return wrappers.TransformObservation(env, lambda obs: obs[order], space)


class NoisyObservations(gymnasium.ObservationWrapper):
    """64 numbers without meaning beside the observation."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        box: Any = env.observation_space
        low, high = (np.append(end, [end_of] * N_NOISE).astype(np.float32)
                     for end, end_of in ((box.low, -np.inf), (box.high, np.inf)))  # fmt: skip
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        noise = self.np_random.standard_normal(N_NOISE)
        return np.append(observation, noise).astype(np.float32)


def small_actions(env: gymnasium.Env) -> gymnasium.Env:
    """A Box a hundred times smaller that does the same."""
    box: Any = env.action_space
    space = spaces.Box(0.01 * box.low, 0.01 * box.high, dtype=np.float32)
    return wrappers.TransformAction(env, lambda action: 100.0 * action, space)


def no_velocity(env: gymnasium.Env) -> gymnasium.Env:
    box: Any = env.observation_space
    space = spaces.Box(box.low[::2], box.high[::2], dtype=np.float32)
    return wrappers.TransformObservation(env, lambda obs: obs[::2], space)


MUTATIONS: dict[str, Callable[[gymnasium.Env], gymnasium.Env]] = {
    "reward_x0.001": small_rewards,
    "reward_x1000_500": shifted_rewards,
    "obs_x1000": large_observations,
    "obs_permuted": permuted_observations,
    "obs_noise": NoisyObservations,
    "action_x0.01": small_actions,
}


class Recall(gymnasium.Env):
    """One of four signs is shown first, and asked for ten steps later."""

    LAST = 10

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (6,))
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_steps, self.sign = 0, int(self.np_random.integers(4))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        is_asked = self.n_steps == self.LAST
        reward = float(is_asked and int(action) == self.sign)
        self.n_steps += 1
        return self._seen(), reward, is_asked, False, {}

    def _seen(self) -> np.ndarray:
        seen = np.zeros(6, np.float32)
        seen[self.sign] = self.n_steps == 0
        seen[4:] = self.np_random.uniform(-1.0, 1.0), self.n_steps == self.LAST
        return seen


class TMaze(gymnasium.Env):
    """The sign at its start says where to turn at its end; a wrong turn costs as much as the right
    one pays."""

    END = 5

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,))
        self.action_space = spaces.Discrete(4)  # on, back, left, right

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.sign = 0, int(self.np_random.choice([-1, 1]))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.place == self.END and action >= 2:
            is_right = (action == 2) == (self.sign > 0)
            return self._seen(), 1.0 if is_right else -1.0, True, False, {}
        if action < 2:
            self.place = int(np.clip(self.place + (1 if action == 0 else -1), 0, self.END))
        return self._seen(), -0.01, False, False, {}

    def _seen(self) -> np.ndarray:
        is_at = self.place == 0, self.place == self.END
        noise = np.clip(0.1 * self.np_random.standard_normal(), -1.0, 1.0)
        return np.array([is_at[0] * self.sign, is_at[1], not any(is_at), noise], np.float32)


class Chain(gymnasium.Env):
    """Back to the start pays a little at once; the end of the chain pays much, at every step."""

    LENGTH = 12

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Discrete(self.LENGTH)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == 0:
            self.place = 0
            return 0, 0.05, False, False, {}
        self.place = min(self.place + 1, self.LENGTH - 1)
        return self.place, float(self.place == self.LENGTH - 1), False, False, {}


OWN: dict[str, tuple[Any, int | None]] = {
    "Recall": (Recall, None), "TMaze": (TMaze, 100), "Chain": (Chain, 50)
}  # fmt: skip


def made(env_id: str, change: Callable[[gymnasium.Env], gymnasium.Env], **kwargs: Any) -> Any:
    return change(gymnasium.make(env_id, **kwargs))


def mutated(name: str, mutation: str) -> str:
    """The id of a mutated classic."""
    return f"{__name__}:{name}-{mutation}-v0"


def _register() -> None:
    for name, env_id in CLASSICS.items():
        spec = gymnasium.spec(env_id)
        changes = {**MUTATIONS, **({"no_velocity": no_velocity} if name == "CartPole" else {})}
        for mutation, change in changes.items():
            entry: Any = partial(made, env_id, change)
            # What a return is worth is known only where it is that of the classic.
            threshold = None if mutation.startswith("reward") else spec.reward_threshold
            gymnasium.register(
                f"{name}-{mutation}-v0",
                entry,
                max_episode_steps=spec.max_episode_steps,
                reward_threshold=threshold,
            )
    for name, (made_by, limit) in OWN.items():
        gymnasium.register(f"{name}-v0", made_by, max_episode_steps=limit)


_register()
