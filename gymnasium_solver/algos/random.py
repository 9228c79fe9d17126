"""random: uniformly random legal actions, as a run like any other.

    gsolve train CartPole-v1 --algo-id random

The baseline of every comparison, with the folder, evaluations, verdict and report of a training.
There is nothing to learn: `update` only counts. Evaluations draw as well; a random policy has no
better action.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from gymnasium_solver.algos.agent import Agent, Tensors
from gymnasium_solver.algos.configs.random import RandomConfig
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Policy
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import Space, obs_len
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.timing import OFF


class UniformPolicy(Policy):
    """Uniform over the legal actions, sampled or greedy."""

    is_stochastic = False

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        return Acted(self.actions.uniform(obs_len(obs), self.rng, mask), carry)

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        return self._draw(obs, carry, is_first, mask)


class Random(Agent):
    Config = RandomConfig

    def __init__(
        self,
        config: RandomConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        self.config = config
        self.observation_space, self.action_space = observation_space, action_space
        self.device, self.timer = torch.device("cpu"), OFF
        self.notes = []
        self.net = nn.Module()
        self.policy = UniformPolicy(
            observation_space, action_kind(action_space), np.random.default_rng(seed)
        )

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        self.n_updates += 1
        return {}

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "n_updates": self.n_updates,
        }
        return {"model": {}, "optimizer": {}}, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.n_updates = extra["n_updates"]

    def load_weights(self, model: dict[str, Any]) -> None:
        if model:
            raise RunError("a random agent has no weights to load.")
