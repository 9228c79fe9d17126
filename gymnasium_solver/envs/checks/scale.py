"""Random steps of an environment, and whether its observations and rewards need normalising: the
rule behind `normalize_obs: auto`, `normalize_reward: auto` and the advice of `gsolve doctor env`.

    rollout = record(env, ROWS)                                # N_ENVS envs, SEED
    why_normalize_obs(env.observation_space, rollout)          # "up to 1e+06 in size", or None
    why_normalize_reward(rollout)

Only the first ROWS rows of random steps are looked at, always from the same seed. So the answer is
the same for every seed of a run, and the same here and there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.spaces.images import is_image
from gymnasium_solver.spaces.observations import Space, part_spaces, unit_scale
from gymnasium_solver.spaces.space_types import is_box

ROWS = 100
LARGE_OBS, SMALL_OBS, UNEVEN_OBS = 10.0, 0.15, 100.0  # size, deviation, ratio of deviations
LARGE_REWARD, LARGE_RETURN = 10.0, 200.0
STILL = 1e-4  # deviation of a number that hardly changes; the normaliser does not raise it to 1
N_ENVS = 4
SEED = 1
STACKED = ("obs", "reward", "terminated", "truncated", "is_over", "is_reset")


@dataclass(frozen=True)
class Rollout:
    """T random steps of N envs; reset rows are marked and do not count as steps."""

    first_obs: Any
    """Observations [N, ...], or such arrays by name."""
    obs: Any
    """[T, N, ...], or such arrays by name."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    is_over: np.ndarray
    is_reset: np.ndarray
    lengths: list[int]
    returns: list[float]
    ends: list[str]
    """How each episode ended: terminated, truncated or both."""


def record(env: VectorEnv, n_steps: int, seed: int = SEED, action_seed: int = SEED) -> Rollout:
    """Random steps from a reset, kept whole."""
    policy = RandomPolicy(env.action_space, env.n_envs, action_seed)
    first_obs = env.reset(seed)
    steps = []
    lengths: list[int] = []
    returns: list[float] = []
    ends: list[str] = []
    for _ in range(n_steps):
        step = env.step(policy.act(env.action_mask))
        steps.append(step)
        for row in np.flatnonzero(step.is_over):
            both = step.terminated[row] and step.truncated[row]
            ends.append("both" if both else "terminated" if step.terminated[row] else "truncated")
            lengths.append(int(step.episode_length[row]))
            returns.append(float(step.episode_return[row]))
    stacked = {name: _stacked([getattr(step, name) for step in steps]) for name in STACKED}
    return Rollout(first_obs, lengths=lengths, returns=returns, ends=ends, **stacked)


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)


def why_normalize_obs(space: Space, rollout: Rollout) -> str | None:
    """What is wrong with the scale of the observations, or None."""
    for name, part in part_spaces(space).items():
        first = rollout.first_obs[name] if name else rollout.first_obs
        then = rollout.obs[name] if name else rollout.obs
        why = why_normalize_part(part, first, then)
        if why is not None:
            return f"{name} {why}" if name else why
    return None


def why_normalize_part(space: Space, first: np.ndarray, then: np.ndarray) -> str | None:
    """The same for one part: observations [N, ...] after the reset and [T, N, ...] after steps."""
    if not is_box(space) or is_image(space):
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
