"""A policy that acts: observations in, actions out, from its own random stream.

`Policy` is what the collector, evaluations and users see; each kind of learner has its own `_draw`
and `_best`. Actions are in the policy's units (class indices, or reals with [-1, 1] as the bounds),
which is what is learnt from; `to_env` turns them into the environment's.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.errors import EnvError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.spaces.distributions import MASKED_LOGIT, distribution_for
from gymnasium_solver.spaces.spaces import ActionMap

Obs = np.ndarray | Tensor  # [N, ...] as the env gives them; a tensor is on the network's device
Mask = np.ndarray | None  # [N, A] bool: the legal actions


class Policy(ABC):
    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        rng: np.random.Generator,
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self.action_map = ActionMap(action_space)
        self.rng = rng
        self.is_random = False  # warm-up: `sample` draws uniformly

    @abstractmethod
    def _draw(self, obs: Obs, mask: Mask) -> np.ndarray:
        """Actions to explore with."""

    @abstractmethod
    def _best(self, obs: Obs, mask: Mask) -> np.ndarray:
        """Actions to score with."""

    def sample(self, obs: Obs, mask: Mask = None) -> np.ndarray:
        """Draw actions for a batch of observations, in the policy's own units."""
        return self.uniform(len(obs), mask) if self.is_random else self._draw(obs, mask)

    def greedy(self, obs: Obs, mask: Mask = None) -> np.ndarray:
        return self._best(obs, mask)

    def uniform(self, n: int, mask: Mask = None) -> np.ndarray:
        """Actions drawn evenly from all legal ones; an unbounded Box from a unit normal."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            if mask is None:
                return self.rng.integers(space.n, size=n)
            return np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)
        shape = (n, int(np.prod(space.shape or (), dtype=int)))
        if self.action_map.bounded:
            return self.rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        return self.rng.standard_normal(shape, dtype=np.float32)

    def end_episodes(self, ended: np.ndarray) -> None:  # noqa: B027  (most keep nothing)
        """Told in which envs [N] an episode ended, for what is kept from step to step."""

    def state(self) -> dict[str, Any]:
        """What is kept from step to step besides the random stream, as JSON."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on with what `state` gave."""

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """From the policy's units to the environment's."""
        return self.action_map.to_env(actions)

    def act(self, obs: Any, greedy: bool = True, mask: Any = None) -> Any:
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
        if mask is not None:
            mask = np.asarray(mask, bool)
            mask = mask[None] if is_single else mask
        actions = self.to_env((self.greedy if greedy else self.sample)(batch, mask))
        return actions[0] if is_single else actions


class ActorPolicy(Policy):
    """Acts by the actor of an ActorCritic: a draw from its distribution, or the mode."""

    def __init__(
        self,
        net: ActorCritic,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        rng: np.random.Generator,
    ):
        super().__init__(observation_space, action_space, rng)
        self.net = net
        self.distribution = distribution_for(action_space)

    def _draw(self, obs: Obs, mask: Mask) -> np.ndarray:
        return self.distribution.sample(self._outputs(obs, mask), self._log_std(), self.rng)

    def _best(self, obs: Obs, mask: Mask) -> np.ndarray:
        return self.distribution.mode(self._outputs(obs, mask))

    def _outputs(self, obs: Obs, mask: Mask) -> np.ndarray:
        outputs = self.net.actor_outputs(obs)
        return outputs if mask is None else np.where(mask, outputs, MASKED_LOGIT)

    def _log_std(self) -> np.ndarray | None:
        log_std = self.net.log_std
        return None if log_std is None else log_std.detach().cpu().numpy()
