"""Shared parts of TD3 and DDPG: networks, targets, exploration noise, gradient steps.

Each algorithm adds its own critic loss and its own update.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.shared import DeterministicConfig
from gymnasium_solver.algos.off_policy import OffPolicyLearner, ReplayBatch
from gymnasium_solver.data.memory import Draw, Sample
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.spaces.observations import Space

# Correlation of the noise between two steps; for Ornstein-Uhlenbeck as in Lillicrap et al. 2016.
KEEPS = {"gaussian": 0.0, "ou": 0.85}


class DeterministicLearner(OffPolicyLearner):
    is_one_graph = True
    net: ActorCritics
    policy: DeterministicPolicy

    def __init__(
        self,
        config: DeterministicConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str,
        n_critics: int,
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.noise_schedule = config.exploration_noise
        self.width = require_bounded_box(action_space, config.algo_id, config.env_id).width
        self.net = ActorCritics(
            observation_space,
            self.network,
            n_actor_outputs=self.width,
            n_critics=n_critics,
            n_critic_actions=self.width,
            critic_hidden_dims=config.critic_hidden_dims,
            normalize_obs=config.obs_normalization,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = DeterministicPolicy(
            self.net,
            observation_space,
            self.actions,
            self.act_rng,
            KEEPS[config.exploration_noise_type],
            record=self.may_record_acting,
            compile=self.compiles,
        )
        self.forwards["act"] = self.policy.explorer
        self.policy.noise_std = self.noise_schedule.values[-1]  # until a checkpoint sets it
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic)
        self.target_actor = cast(Actor, self.set_target(self.actor_optimizer))
        self.target_critic = cast(Critics, self.set_target(self.critic_optimizer))
        self.critic_gradient = self.add_gradient(
            "critic",
            self.critic_terms,
            self.critic_optimizer,
            constants=[*self.target_actor.parameters(), *self.target_critic.parameters()],
        )
        self.actor_gradient = self.add_gradient(
            "policy", self._actor_terms, self.actor_optimizer, self.critic_optimizer.params
        )

    @abstractmethod
    def critic_terms(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the critics' loss and [loss, mean Q-value, absolute TD errors [B]]."""

    def _actor_terms(
        self, obs: TensorObs, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        loss = actor_loss(self.net, obs)
        return loss, [loss]

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.noise_schedule.at(env_steps, total_steps)

    def learn_critic(
        self,
        batch: ReplayBatch,
        sample: Sample | Draw,
        coefficients: Sequence[float],
        lr: float,
        tau: float | None = None,
    ) -> dict[str, Any]:
        """A gradient step of the critics. `tau`: the target critics move too."""
        with self.timer.detail("gradient"):
            grad, loss, q_mean, error = self.critic_gradient(batch, coefficients)
        with self.timer.detail("optimiser"):
            if tau is None:
                norm = self.critic_optimizer.step(grad, lr)
            else:
                norm = self.step_with_target(self.critic_optimizer, grad, lr, tau)
        self.set_priorities(sample, error)
        return {"opt/loss/critic": loss, "opt/q/mean": q_mean, "opt/grads/norm/critic": norm}

    def forward_all(self, batch: ReplayBatch) -> None:
        self.net(batch.obs, batch.actions)

    def learn_actor(self, batch: ReplayBatch, lr: float, tau: float) -> dict[str, Any]:
        """A gradient step of the actor, whose target moves too."""
        with self.timer.detail("gradient"):
            grad, loss = self.actor_gradient(batch.obs, [])
        with self.timer.detail("optimiser"):
            norm = self.step_with_target(self.actor_optimizer, grad, lr, tau)
        return {"opt/loss/policy": loss, "opt/grads/norm/policy": norm}


def actor_loss(net: ActorCritics, obs: TensorObs) -> Tensor:
    """Minus the first critic's value of the actor's action."""
    x = net.encoder(obs)
    return -net.critic.first(x, torch.tanh(net.actor(x))).mean()
