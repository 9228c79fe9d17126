"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

One update: the critic towards reward plus the target critic's value of the target actor's action;
the actor towards what the critic values most; both targets follow. TD3 mends its overestimation and
is nearly always the better choice. Where this departs from the paper: no batch norm, no decay of
the critic's weights (`weight_decay`), wider targets' steps (`tau` 0.005), and a truncated episode
bootstraps from its true final observation.
"""

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.algos.deterministic import (
    DeterministicConfig,
    DeterministicLearner,
    NoiseType,
    actor_loss,
)
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critics import ActorCritics


class DDPGConfig(DeterministicConfig):
    critic_lr: PositiveSchedule | None = Schedule.constant(1e-3)
    """Learning rate of the critic. null: as policy_lr."""
    exploration_noise: NonNegativeSchedule = Schedule.constant(0.2)
    """Deviation of the noise on actions in training, where 1 is half the range of an action.
    Higher: explores more."""
    exploration_noise_type: NoiseType = "ou"
    """gaussian: new in every step; ou: wanders (Ornstein-Uhlenbeck), which pushes one way longer;
    its deviation over time is about twice exploration_noise."""


def critic_loss(
    net: ActorCritics, target_actor: nn.Module, target_critic: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, the mean value and the absolute errors [B]."""
    with torch.no_grad():
        next_x = net.cast(batch.next_x)
        next_actions = torch.tanh(target_actor(next_x))
        next_q = target_critic(torch.cat([next_x, next_actions], dim=1)).view(-1)
        wanted = batch.reward + batch.discount * next_q
    q = net.critic(torch.cat([net.cast(batch.x), batch.actions], dim=1)).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


class DDPG(DeterministicLearner):
    Config = DDPGConfig

    def __init__(
        self,
        config: DDPGConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device, n_critics=1)
        self.config: DDPGConfig = config
        self.critic_gradient = LossGradient(
            self._critic_loss,
            self.critic_optimizer.params,
            record=self.may_record,
            constants=[*self.target_actor.parameters(), *self.target_critic.parameters()],
        )
        self.actor_gradient = LossGradient(
            self._actor_loss,
            self.actor_optimizer.params,
            record=self.may_record,
            constants=self.critic_optimizer.params,
        )

    def _critic_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms = critic_loss(self.net, self.target_actor, self.target_critic, Batch(*columns))
        return terms[0], list(terms)

    def _actor_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        loss = actor_loss(self.net, columns[0])
        return loss, [loss]

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, Any]:
        """Take a rollout in and do the updates that are due; the metrics of these, by name."""
        hp = self.scheduled_values(env_steps, total_steps)
        n_updates = self.remember(rollout, env_steps)
        samples = self.batches(n_updates, hp) if n_updates else ()
        steps = [self._learn(sample, hp) for sample in samples]
        return ops.mean_metrics(steps) | {f"hp/{name}": value for name, value in hp.items()}

    def _learn(self, sample: Sample, hp: dict[str, float]) -> dict[str, Any]:
        """One update of critic, actor and targets."""
        batch = Batch.of(self, sample)
        grad, loss, q_mean, error = self.critic_gradient(list(batch), [])
        norm = self.critic_optimizer.step(grad, hp.get("critic_lr", hp["policy_lr"]))
        metrics = {"opt/loss/critic": loss, "opt/q/mean": q_mean, "opt/grads/norm/critic": norm}
        if self.config.prioritized:
            assert self.memory is not None
            self.memory.update_priorities(sample.index, error.cpu().numpy())

        grad, loss = self.actor_gradient([batch.x], [])
        norm = self.actor_optimizer.step(grad, hp["policy_lr"])
        self.update_target(self.config.tau)
        return metrics | {"opt/loss/policy": loss, "opt/grads/norm/policy": norm}
