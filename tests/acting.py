"""Acting without a training loop: a policy's actions, and rollouts of it."""

from typing import Any

import numpy as np

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.policies.policy import Mask, Policy
from gymnasium_solver.spaces.observations import obs_len, part_spaces, take_rows


def drawn(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `sample` gives, from a new carry."""
    n = obs_len(obs)
    return policy.sample(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions


def best(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `greedy` gives, from a new carry."""
    n = obs_len(obs)
    return policy.greedy(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions


def random_rollout(policy: Policy, n_rows: int, n_envs: int, seed: int = 0) -> Rollout:
    """Observations and rewards drawn at random, actions by the policy; every row counts."""
    rng, space = np.random.default_rng(seed), policy.observation_space
    rollout = Rollout.allocate(n_rows, n_envs, space, policy.actions, n_outputs=policy.n_outputs)
    obs = rollout.obs if isinstance(rollout.obs, dict) else {"": rollout.obs}
    for name, part in part_spaces(space).items():
        part.seed(seed)
        obs[name][:] = [[part.sample() for _ in range(n_envs)] for _ in range(n_rows + 1)]
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.valid[:] = True
    rollout.is_first[0] = True
    rollout.log_std = policy.log_std()
    carry = policy.initial_carry(n_envs)
    for t in range(n_rows):
        acted = policy.sample(take_rows(rollout.obs, t), carry, rollout.is_first[t])
        rollout.actions[t], carry = acted.actions, acted.carry
        if rollout.outputs is not None:
            rollout.outputs[t] = acted.outputs
    return rollout
