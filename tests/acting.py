"""Acting without a training loop: the actions of a policy for observations that open episodes."""

from typing import Any

import numpy as np

from gymnasium_solver.policies.policy import Mask, Policy
from gymnasium_solver.spaces.observations import obs_len


def drawn(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `sample` gives, from a new carry."""
    n = obs_len(obs)
    return policy.sample(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions


def best(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `greedy` gives, from a new carry."""
    n = obs_len(obs)
    return policy.greedy(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions
