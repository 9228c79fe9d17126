"""Acting by the actor of an ActorCritics: SAC draws from it, TD3 and DDPG add noise to it."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.nets.actor_critics import LOG_STD_MAX, LOG_STD_MIN, ActorCritics
from gymnasium_solver.policies.noise import Noise
from gymnasium_solver.policies.policy import Mask, Obs, Policy
from gymnasium_solver.spaces.distributions import MASKED_LOGIT, gumbel_max
from gymnasium_solver.spaces.spaces import action_width


class NoisyPolicy(Policy):
    """A policy on an ActorCritics that explores with noise that may last."""

    def __init__(
        self,
        net: ActorCritics,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        rng: np.random.Generator,
        keeps: float,
    ):
        super().__init__(observation_space, action_space, rng)
        self.net = net
        self.noise = Noise(action_width(action_space), keeps)

    def end_episodes(self, ended: np.ndarray) -> None:
        self.noise.end_episodes(ended)

    def state(self) -> dict[str, Any]:
        return self.noise.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.noise.load_state(state)


class SoftPolicy(NoisyPolicy):
    """Acts by a squashed Gaussian or a categorical actor: a draw, or the mode.

    Draws may be alike from step to step (`keeps`); each alone is distributed as the actor says.
    """

    def _draw(self, obs: Obs, mask: Mask) -> np.ndarray:
        outputs = self._outputs(obs, mask)
        if self.action_map.discrete:
            return gumbel_max(outputs, self.noise.exponential(len(obs), self.rng))
        mean, log_std = np.split(outputs, 2, axis=1)
        std = math.sqrt(1.0 - float(self.noise.keeps) ** 2)
        noise = self.noise.normal(len(obs), std, 1.0, self.rng)
        return np.tanh(mean + np.exp(np.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)) * noise)

    def _best(self, obs: Obs, mask: Mask) -> np.ndarray:
        outputs = self._outputs(obs, mask)
        if self.action_map.discrete:
            return outputs.argmax(axis=1)
        return np.tanh(outputs[:, : outputs.shape[1] // 2])

    def _outputs(self, obs: Obs, mask: Mask) -> np.ndarray:
        outputs = self.net.actor_outputs(obs)
        return outputs if mask is None else np.where(mask, outputs, np.float32(MASKED_LOGIT))


class DeterministicPolicy(NoisyPolicy):
    """Acts by tanh of the actor's outputs; explores with noise of deviation `noise_std` on top.

    "ou" noise (Ornstein-Uhlenbeck) wanders: it keeps most of its last value.
    """

    noise_std = 0.0  # set from outside as a run goes on

    def _best(self, obs: Obs, mask: Mask) -> np.ndarray:
        return np.tanh(self.net.actor_outputs(obs))

    def _draw(self, obs: Obs, mask: Mask) -> np.ndarray:
        noise = self.noise.normal(len(obs), self.noise_std, self.noise_std, self.rng)
        return np.clip(self._best(obs, mask) + noise, -1.0, 1.0)
