"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

One update: both critics towards reward plus the lower of the target critics' values, at the target
actor's action with a little clipped noise (which smooths the value); every `policy_delay` updates
the actor towards what the first critic values most, and the targets after both. Where this departs
from common code: a truncated episode bootstraps from its true final observation; noise is in the
policy's units, where [-1, 1] are the bounds of an action; layers are initialised as torch does.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.algos.deterministic import (
    DeterministicConfig,
    DeterministicLearner,
    actor_loss,
)
from gymnasium_solver.config.schema import Count, Float
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critics import ActorCritics


class TD3Config(DeterministicConfig):
    policy_delay: Count = 2
    """Critic updates for each update of the actor and the targets. More: steadier, slower."""
    target_noise: Annotated[Float, Field(ge=0)] = 0.2
    """Deviation of the noise on the target actor's actions. Higher: smoother values."""
    target_noise_clip: Annotated[Float, Field(ge=0)] = 0.5
    """Largest size of that noise."""
    n_critics: Count = 2
    """Critics, of which the lowest value counts. More: less overestimation, slower."""


def critic_loss(
    net: ActorCritics,
    target_actor: nn.Module,
    target_critic: nn.Module,
    batch: Batch,
    noise: Tensor,
    noise_std: Tensor,
    noise_clip: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, the mean value and the absolute errors [B]; `noise` [B, A] is unit normal."""
    with torch.no_grad():
        next_x = net.cast(batch.next_x)
        smoothing = (noise * noise_std).clamp(-noise_clip, noise_clip)
        next_actions = (torch.tanh(target_actor(next_x)) + smoothing).clamp(-1.0, 1.0)
        next_q = target_critic(torch.cat([next_x, next_actions], dim=1)).squeeze(2).amin(0)
        wanted = batch.reward + batch.discount * next_q
    q = net.critic(torch.cat([net.cast(batch.x), batch.actions], dim=1)).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


class TD3(DeterministicLearner):
    Config = TD3Config

    def __init__(
        self,
        config: TD3Config,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device, config.n_critics)
        self.config: TD3Config = config
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
        *batch, noise = columns
        terms = critic_loss(
            self.net, self.target_actor, self.target_critic, Batch(*batch), noise, *coefficients
        )
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
        """One update of the critics and, if it is its turn, of the actor and the targets."""
        cfg, batch = self.config, Batch.of(self, sample)
        noise = self.to_device(self.rng.standard_normal(sample.actions.shape, dtype=np.float32))
        smoothing = [cfg.target_noise, cfg.target_noise_clip]
        grad, loss, q_mean, error = self.critic_gradient([*batch, noise], smoothing)
        norm = self.critic_optimizer.step(grad, hp.get("critic_lr", hp["policy_lr"]))
        metrics = {"opt/loss/critic": loss, "opt/q/mean": q_mean, "opt/grads/norm/critic": norm}
        if cfg.prioritized:
            assert self.memory is not None
            self.memory.update_priorities(sample.index, error.cpu().numpy())

        if self.critic_optimizer.n_steps % cfg.policy_delay == 0:
            grad, loss = self.actor_gradient([batch.x], [])
            norm = self.actor_optimizer.step(grad, hp["policy_lr"])
            metrics |= {"opt/loss/policy": loss, "opt/grads/norm/policy": norm}
            self.update_target(cfg.tau)
        return metrics
