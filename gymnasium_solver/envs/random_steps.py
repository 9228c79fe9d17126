"""Uniformly random actions, random steps, and whether observations and rewards need normalising.

    policy = RandomPolicy(env.action_space, env.n_envs, seed=1)
    step = env.step(policy.act(env.action_mask))
    returns, lengths = random_episodes(env, seed=1)            # one whole episode of each env
    rollout = record(env, ROWS)                                # N_ENVS envs, SEED
    why_normalize_obs(env.observation_space, rollout)          # "up to 1e+06 in size", or None
    why_normalize_reward(rollout)

A bounded number is drawn uniformly between its bounds, an unbounded one from a unit normal. Where
the env has masks, actions are drawn uniformly from the legal ones.

The rule of `why_normalize_...` is behind `normalize_obs: auto`, `normalize_reward: auto` and the
advice of `gsolve doctor env`. Only the first ROWS rows of random steps are looked at, always from
the same seed, so the answer is the same for every seed of a run.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces import space_types
from gymnasium_solver.spaces.observations import (
    Space,
    is_image,
    join_obs,
    obs_arrays,
    part_spaces,
    unit_scale,
)


class RandomPolicy:
    """Draws actions for N envs from a space, without looking at observations."""

    def __init__(self, space: Any, n_envs: int, seed: int) -> None:
        self.space, self.n_envs = space, n_envs
        self._leaves = space_types.action_leaves(space)
        self.rng = np.random.default_rng(seed)

    def act(self, mask: np.ndarray | None = None) -> np.ndarray:
        """Actions (N, *shape); `mask` bool[N, columns] where some are illegal."""
        if not space_types.is_product(self.space):
            return self._draw(self.space, mask)
        leaves = [self._draw(leaf, None) for leaf in self._leaves]
        columns = [leaf.reshape(self.n_envs, -1).astype(np.float64) for leaf in leaves]
        return np.concatenate(columns, axis=1)

    def _draw(self, space: Any, mask: np.ndarray | None) -> np.ndarray:
        shape = (self.n_envs, *space.shape)
        if space_types.is_box(space):
            return self._box(space, shape)
        low, high = space_types.whole_range(space)
        if mask is None:
            return self.rng.integers(high - low + 1, size=shape) + low
        splits = np.cumsum(space_types.choices(space) or [])[:-1]
        # One legal column of each row: the largest of independent draws is at each legal place
        # equally often.
        columns = [
            np.argmax(np.where(part, self.rng.random(part.shape), -1.0), axis=1)
            for part in np.split(mask, splits, axis=1)
        ]
        return np.stack(columns, axis=1).reshape(shape) + low

    def _box(self, space: Any, shape: tuple[int, ...]) -> np.ndarray:
        has_bounds = space_types.bounded(space)
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


# -- random steps, and their scale ----------------------------------------------------------------


ROWS = 100
LARGE_OBS, SMALL_OBS, UNEVEN_OBS = 10.0, 0.15, 100.0  # size, deviation, ratio of deviations
LARGE_REWARD, LARGE_RETURN = 10.0, 200.0
STILL = 1e-4  # deviation of a number that hardly changes; the normaliser does not raise it to 1
MOST_PAIR_BYTES, FEWEST_REPEATED = 1024, 50  # of RepeatedPairs
N_ENVS = 4
SEED = 1
MOST_HISTORY = 6  # earlier steps that may explain a reward
ENDS = ("", "terminated", "truncated", "both")
STACKED = ("obs", "reward", "terminated", "truncated", "is_over", "is_reset")


@dataclass(frozen=True)
class Rollout:
    """T random steps of N envs; reset rows are marked and do not count as steps."""

    first_obs: Any  # observations [N, ...], or such arrays by name
    obs: Any  # [T, N, ...], or such arrays by name
    actions: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    is_over: np.ndarray
    is_reset: np.ndarray
    lengths: list[int]
    returns: list[float]
    ends: list[str]  # how each episode ended: terminated, truncated or both


def record(env: VectorEnv, n_steps: int, seed: int = SEED, action_seed: int = SEED) -> Rollout:
    """Random steps from a reset, kept whole."""
    policy = RandomPolicy(env.action_space, env.n_envs, action_seed)
    first_obs = env.reset(seed)
    steps, actions = [], []
    for _ in range(n_steps):
        actions.append(policy.act(env.action_mask))
        steps.append(env.step(actions[-1]))
    over = [(step, row) for step in steps for row in np.flatnonzero(step.is_over)]
    return Rollout(
        first_obs,
        actions=np.stack(actions),
        lengths=[int(step.episode_length[row]) for step, row in over],
        returns=[float(step.episode_return[row]) for step, row in over],
        ends=[ENDS[step.terminated[row] + 2 * step.truncated[row]] for step, row in over],
        **{n: join_obs(np.stack, [getattr(step, n) for step in steps]) for n in STACKED},
    )


class RepeatedPairs:
    """Counts how often the same action at an equal observation gives another reward than before:
    a sign that what pays depends on what was seen earlier, or on chance."""

    def __init__(self) -> None:
        self._pairs: list[np.ndarray] = []
        self._rewards: list[np.ndarray] = []

    def add(self, columns: list[np.ndarray], rewards: np.ndarray) -> None:
        """`columns`: the parts of the observations and the actions, [n, ...] each."""
        flat = [column.reshape(len(rewards), -1) for column in columns]
        if sum(column[:1].nbytes for column in flat) > MOST_PAIR_BYTES:
            return  # images: equal ones are rare
        rows = [np.ascontiguousarray(column).view(np.uint8) for column in flat]
        self._pairs.append(np.hstack(rows))
        self._rewards.append(rewards.astype(np.float64))

    def found(self) -> tuple[float, float] | None:
        """Their share of the repeated pairs, and its standard error at most; None if too few are
        repeated."""
        if not self._pairs:
            return None
        pairs, rewards = np.concatenate(self._pairs), np.concatenate(self._rewards)
        as_one = pairs.view(np.dtype((np.void, pairs.shape[1]))).reshape(-1)
        _, first, own = np.unique(as_one, return_index=True, return_inverse=True)
        before = rewards[first][own]
        is_different = np.abs(before - rewards) > 1e-6 * (1.0 + np.abs(before))
        n_repeated = len(rewards) - len(first)
        if n_repeated < FEWEST_REPEATED:
            return None
        return int(is_different.sum()) / n_repeated, 0.5 / math.sqrt(n_repeated)

    @property
    def ambiguous(self) -> float | None:
        """The share alone."""
        found = self.found()
        return None if found is None else found[0]


class Ambiguity(NamedTuple):
    """Whether equal observations pay differently."""

    share: float | None
    """Of repeated pairs of observation and action that gave another reward; None: too few are."""
    history: int | None = None
    """Earlier steps that explain most of it; None: no such number is known, it may be chance."""


def ambiguity(rollout: Rollout) -> Ambiguity:
    """Aliasing is told from chance by earlier observations (and actions): noise stays as large
    where these are equal too."""
    now = _pairs(rollout, 0, with_actions=False).ambiguous
    if now is None:
        return Ambiguity(None)
    for history, with_actions in product(range(1, MOST_HISTORY + 1), (False, True)):
        left = _pairs(rollout, history, with_actions).found()
        if left is not None and left[0] + 2.0 * left[1] < 0.5 * now:
            return Ambiguity(now, history)
    return Ambiguity(now)


def _pairs(rollout: Rollout, history: int, with_actions: bool) -> RepeatedPairs:
    """Pairs of the last observations of an episode and an action, with its reward."""
    n_rows, first = len(rollout.reward), history + 1
    whole = ~rollout.is_reset[first:]
    for back in range(1, first):
        whole &= ~rollout.is_reset[first - back : n_rows - back]
    columns = [rollout.actions[first:][whole]]
    for back in range(first):
        rows = slice(history - back, n_rows - 1 - back)
        columns += [part[rows][whole] for _, part in obs_arrays(rollout.obs)]
        if with_actions and back:
            columns.append(rollout.actions[first - back : n_rows - back][whole])
    found = RepeatedPairs()
    if whole.any():
        found.add(columns, rollout.reward[first:][whole])
    return found


def why_normalize_obs(space: Space, rollout: Rollout) -> str | None:
    """What is wrong with the scale of the observations, or None."""
    first, then = dict(obs_arrays(rollout.first_obs)), dict(obs_arrays(rollout.obs))
    for name, part in part_spaces(space).items():
        why = why_normalize_part(part, first[name], then[name])
        if why is not None:
            return f"{name} {why}" if name else why
    return None


def why_normalize_part(space: Space, first: np.ndarray, then: np.ndarray) -> str | None:
    """The same for one part: observations [N, ...] after the reset and [T, N, ...] after steps."""
    if not space_types.is_box(space) or is_image(space):
        return None
    numbers = as_numbers(space, np.concatenate([first[None], then[:ROWS]]))
    numbers = numbers[np.isfinite(numbers).all(axis=1)]  # NaN is reported elsewhere
    if not len(numbers):
        return None
    spread, largest = numbers.std(axis=0), float(np.abs(numbers).max(initial=0.0))
    moving = spread[spread > STILL]
    if largest > LARGE_OBS:
        return f"up to {largest:.3g} in size"
    if not len(moving):
        return None
    if moving.max() / moving.min() > UNEVEN_OBS:
        return f"of uneven size, deviations {moving.min():.2g} to {moving.max():.2g}"
    if moving.max() < SMALL_OBS:
        return f"of small size, deviations up to {moving.max():.2g}"
    return None


def as_numbers(space: Space, obs: Any) -> np.ndarray:
    """Observations [..., *shape] as a network reads them without normalisation: [n, width]."""
    flat = np.asarray(obs, np.float64).reshape(-1, int(np.prod(space.shape or ())))
    scale = unit_scale(space)
    return flat if scale is None else (flat - scale[0]) * scale[1]


def why_normalize_reward(rollout: Rollout) -> str | None:
    """What is wrong with the scale of the rewards, or None."""
    is_reset = rollout.is_reset[:ROWS]
    reward = np.where(np.isfinite(rollout.reward[:ROWS]), rollout.reward[:ROWS], 0.0)
    largest = float(np.abs(reward[~is_reset]).max(initial=0.0))
    if largest > LARGE_REWARD:
        return f"up to {largest:.3g} in size"
    running, total = np.zeros(reward.shape[1]), 0.0
    for now, opens in zip(reward, is_reset, strict=True):
        running = np.where(opens, 0.0, running + now)
        total = max(total, float(np.abs(running).max()))
    return f"returns up to {total:.3g} in size" if total > LARGE_RETURN else None
