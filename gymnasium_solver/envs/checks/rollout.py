"""Random steps of an environment, kept whole, for the checks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.envs.vector import VectorEnv

N_ENVS = 4
SEED = 1


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


STACKED = ("obs", "reward", "terminated", "truncated", "is_over", "is_reset")


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)
