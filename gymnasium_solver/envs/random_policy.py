"""Uniformly random actions, the baseline for every agent.

    policy = RandomPolicy(env.action_space, env.n_envs, seed=1)
    step = env.step(policy.act(env.action_mask))
    returns, lengths = random_episodes(env, seed=1)      # one whole episode of each env

A bounded number is drawn uniformly between its bounds, an unbounded one from a unit normal. Where
the env has masks, actions are drawn uniformly from the legal ones.
"""

from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import action_leaves, bounded, is_product
from gymnasium_solver.spaces.space_types import choices, is_box, whole_range


class RandomPolicy:
    """Draws actions for N envs from a space, without looking at observations."""

    def __init__(self, space: Any, n_envs: int, seed: int) -> None:
        self.space, self.n_envs = space, n_envs
        self._leaves = action_leaves(space)
        self.rng = np.random.default_rng(seed)

    def act(self, mask: np.ndarray | None = None) -> np.ndarray:
        """Actions (N, *shape); `mask` bool[N, columns] where some are illegal."""
        if not is_product(self.space):
            return self._draw(self.space, mask)
        leaves = [self._draw(leaf, None) for leaf in self._leaves]
        columns = [leaf.reshape(self.n_envs, -1).astype(np.float64) for leaf in leaves]
        return np.concatenate(columns, axis=1)

    def _draw(self, space: Any, mask: np.ndarray | None) -> np.ndarray:
        shape = (self.n_envs, *space.shape)
        if is_box(space):
            return self._box(space, shape)
        low, high = whole_range(space)
        if mask is None:
            return self.rng.integers(high - low + 1, size=shape) + low
        splits = np.cumsum(choices(space) or [])[:-1]
        columns = [self._legal(part) for part in np.split(mask, splits, axis=1)]
        return np.stack(columns, axis=1).reshape(shape) + low

    def _legal(self, mask: np.ndarray) -> np.ndarray:
        """One legal column of each row. The largest of independent draws is at each legal place
        equally often."""
        draws = np.where(mask, self.rng.random(mask.shape), -1.0)
        return np.argmax(draws, axis=1)

    def _box(self, space: Any, shape: tuple[int, ...]) -> np.ndarray:
        has_bounds = bounded(space)
        low, high = np.where(has_bounds, space.low, 0.0), np.where(has_bounds, space.high, 0.0)
        evenly = self.rng.uniform(low, high, shape)
        if has_bounds.all():
            return evenly
        normal = np.clip(self.rng.standard_normal(shape), space.low, space.high)
        return np.where(has_bounds, evenly, normal)


def random_episodes(
    env: VectorEnv, seed: int, most_steps: int = 200_000
) -> tuple[list[float], list[int]]:
    """Raw returns and lengths of the first episode of every env: short ones are not favoured.

    EnvError where an episode is longer than `most_steps`: it may have no end."""
    policy = RandomPolicy(env.action_space, env.n_envs, seed)
    env.reset(seed)
    is_open = np.ones(env.n_envs, np.bool_)
    returns = np.zeros(env.n_envs)
    lengths = np.zeros(env.n_envs, np.int64)
    for _ in range(most_steps):
        step = env.step(policy.act(env.action_mask))
        ends = step.is_over & is_open
        returns[ends], lengths[ends] = step.episode_return[ends], step.episode_length[ends]
        is_open &= ~ends
        if not is_open.any():
            return returns.tolist(), lengths.tolist()
    raise EnvError(
        f"{env.spec.env_id}: a random episode has not ended after {most_steps:,} steps. Give it a "
        "time limit: max_episode_steps."
    )
