"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

An update trains the critic on the value of the target actor's action under the target critic, then
the actor to maximise the critic, and then updates both target networks. TD3 fixes its
overestimation and is nearly always the better choice. Differences from the paper: no batch norm, no
weight decay on the critic (`weight_decay`), a larger `tau` (0.005), and truncated episodes
bootstrap from their true final observation.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.ddpg import DDPGConfig
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    build_networks,
    deterministic_actor_loss,
    deterministic_policy,
    next_values,
    renamed,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box


def critic_loss(
    net: ActorCritics, target_actor: Actor, target_critic: Critics, batch: ReplayBatch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        following = net.head.lowest(target_critic(next_x, torch.tanh(target_actor(next_x))))
        wanted = net.head.target(following, batch.reward, batch.discount)
    outputs = net.critic(net.encoder(batch.obs), batch.actions)
    return net.head.critics_loss(outputs, wanted, batch.weight)


class DDPG(ReplayLearner):
    Config = DDPGConfig
    config: DDPGConfig
    net: ActorCritics
    policy: DeterministicPolicy

    def build(self) -> None:
        cfg = self.config
        width = require_bounded_box(self.action_space, cfg.algo_id, cfg.env_id).width
        self.net = build_networks(self, n_actor_outputs=width, n_critics=1, n_critic_actions=width)
        self.policy = deterministic_policy(self)
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor, tau=cfg.tau)
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic, tau=cfg.tau)
        self.target_actor = cast(Actor, self.actor.target)
        self.target_critic = cast(Critics, self.critic.target)
        self.program = self.add_program(self.step)

    def critic_loss(
        self, batch: ReplayBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        total, q, errors = critic_loss(self.net, self.target_actor, self.target_critic, batch)
        return total, {"loss": total, "q": q, "errors": errors}

    def actor_loss(
        self, obs: TensorObs, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = deterministic_actor_loss(self.net, obs)
        return loss, {"loss": loss}

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: ReplayBatch, hp: Hp, turn: None) -> Learnt:
        """Update the critic, the actor and the target networks."""
        steps = self.critic(batch, {}, hp.get("critic_lr", hp["policy_lr"]))
        actor = self.actor(batch.obs, {}, hp["policy_lr"])
        metrics = renamed(steps.last(), CRITIC_METRICS) | renamed(actor.last(), ACTOR_METRICS)
        return Learnt(metrics, steps.by_sample["errors"])

    def forward_all(self, batch: ReplayBatch) -> Tensor:
        return taken_values(self.net, batch)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)
