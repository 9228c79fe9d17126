"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

An update trains the critic on the value of the target actor's action under the target critic, then
the actor to maximise the critic, and then updates both target networks. TD3 fixes its
overestimation and is nearly always the better choice. Differences from the paper: no batch norm, no
weight decay on the critic (`weight_decay`), a larger `tau` (0.005), and truncated episodes
bootstrap from their true final observation.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.ddpg import DDPGConfig
from gymnasium_solver.algos.deterministic import (
    DeterministicLearner,
)
from gymnasium_solver.algos.off_policy import ReplayBatch
from gymnasium_solver.data.memory import Draw, Sample
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.spaces.observations import Space


def critic_loss(
    net: ActorCritics, target_actor: Actor, target_critic: Critics, batch: ReplayBatch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        next_q = target_critic(next_x, torch.tanh(target_actor(next_x))).view(-1)
        wanted = batch.reward + batch.discount * next_q
    q = net.critic(net.encoder(batch.obs), batch.actions).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


class DDPG(DeterministicLearner):
    Config = DDPGConfig

    def __init__(
        self,
        config: DDPGConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device, n_critics=1)
        self.config: DDPGConfig = config

    def critic_terms(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms = critic_loss(self.net, self.target_actor, self.target_critic, batch)
        return terms[0], list(terms)

    def learn(
        self, batch: ReplayBatch, sample: Sample | Draw, hp: dict[str, float]
    ) -> dict[str, Any]:
        """Update the critic, the actor and the target networks."""
        tau, critic_lr = self.config.tau, hp.get("critic_lr", hp["policy_lr"])
        metrics = self.learn_critic(batch, sample, [], critic_lr, tau)
        return metrics | self.learn_actor(batch, hp["policy_lr"], tau)
