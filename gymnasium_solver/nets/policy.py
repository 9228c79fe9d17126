"""A policy that acts: network, action distribution, action map, its own random stream."""

from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.distributions import distribution_for
from gymnasium_solver.nets.spaces import ActionMap


class Policy:
    def __init__(
        self,
        net: ActorCritic,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        rng: np.random.Generator,
    ):
        self.net = net
        self.observation_space = observation_space
        self.action_map = ActionMap(action_space)
        self.distribution = distribution_for(action_space)
        self.rng = rng

    def sample(self, obs: np.ndarray) -> np.ndarray:
        """Draw actions for a batch of observations, in the policy's own units (to learn from)."""
        return self.distribution.sample(self.net.actor_outputs(obs), self._log_std(), self.rng)

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        return self.distribution.mode(self.net.actor_outputs(obs))

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """From the policy's units to the environment's."""
        return self.action_map.to_env(actions)

    def act(self, obs: Any, greedy: bool = True) -> Any:
        """The environment's action for one observation, or for a batch of them."""
        obs = np.asarray(obs)
        shape = self.observation_space.shape or ()
        is_single = obs.shape == shape
        if not is_single and obs.shape[1:] != shape:
            raise EnvError(
                f"act() got an observation of shape {obs.shape}; this policy takes {shape}, "
                f"or a batch (n, {', '.join(map(str, shape))})."
            )
        batch = obs[None] if is_single else obs
        actions = self.to_env(self.greedy(batch) if greedy else self.sample(batch))
        return actions[0] if is_single else actions

    def _log_std(self) -> np.ndarray | None:
        log_std = self.net.log_std
        return None if log_std is None else log_std.detach().cpu().numpy()
