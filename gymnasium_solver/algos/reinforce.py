"""REINFORCE: Monte Carlo policy gradient (Williams 1992), with or without a learnt baseline.

One gradient step a minibatch, one pass over each rollout. Returns end where the episode or the
rollout does: without a critic there is nothing to bootstrap from, so take n_steps well above the
episode's length. `policy_targets: advantages` subtracts a learnt value, fitted to the returns.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule
from gymnasium_solver.config.schema import (
    ActorCriticFields,
    BatchSize,
    Count,
    LearnerConfig,
    MinibatchFields,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.distributions import MASKED_LOGIT, Distribution


class ReinforceConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
    n_steps: Count = 2048
    """Rows each env contributes to a rollout. Should hold several whole episodes."""
    batch_size: BatchSize = 1.0  # type: ignore[assignment]
    """Samples in a gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step a rollout,
    the policy gradient as it is written."""
    policy_lr: PositiveSchedule = Schedule.constant(1e-2)
    """Learning rate. Higher: faster, until it becomes unstable."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.01)
    """Weight of the entropy bonus. Higher: explores more, converges later."""
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """What weighs an action: the rewards that follow it, or its whole episode's (more noise)."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """Weigh actions by returns, or by returns minus a learnt value (less noise)."""
    normalize_returns: bool = True
    """Standardise the weights over the rollout. Off: the textbook gradient, sensitive to scale."""
    vf_coef: NonNegativeSchedule = Schedule.constant(0.5)
    """Weight of the value loss, where a value is learnt."""


class Batch(NamedTuple):
    x: Tensor  # encoded observations [B, width]
    actions: Tensor  # [B] or [B, A]
    weight: Tensor  # [B]
    returns: Tensor  # [B]
    mask: Tensor | None = None  # legal actions [B, A], where the env has masks

    def take(self, index: Tensor) -> "Batch":
        return Batch(*(column[index] for column in self.columns()))

    def columns(self) -> list[Tensor]:
        return [column for column in self if column is not None]


class LossTerms(NamedTuple):
    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def reinforce_loss(
    net: ActorCritic, dist: Distribution, batch: Batch, ent_coef: Tensor, vf_coef: Tensor
) -> LossTerms:
    if net.critic_head is None:
        outputs, value_loss = net.actor(batch.x), batch.weight.new_zeros(())
    else:
        outputs, value = net(batch.x)
        value_loss = (value - batch.returns).square().mean()
    if batch.mask is not None:
        outputs = outputs.masked_fill(~batch.mask, MASKED_LOGIT)
    log_prob, entropy = dist.log_prob_entropy(outputs, net.log_std, batch.actions)
    policy_loss = -(log_prob * batch.weight).mean()
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy.mean()
    return LossTerms(total, policy_loss, value_loss, entropy.mean())


class Reinforce(Learner):
    Config = ReinforceConfig
    net: ActorCritic
    policy: ActorPolicy

    def __init__(
        self,
        config: ReinforceConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: ReinforceConfig = config
        self.net, self.policy, self.optimizer = self.build_actor_critic(
            critic=config.policy_targets == "advantages"
        )
        self.gradient = LossGradient(self._loss, self.optimizer.params, record=self.may_record)

    def _loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        dist, (ent_coef, vf_coef) = self.policy.distribution, coefficients
        terms = reinforce_loss(self.net, dist, Batch(*columns), ent_coef, vf_coef)
        return terms.total, list(terms)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Learn from one rollout; the metrics of the update, by name."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        batch = self._prepare(rollout)
        terms, norms = [], []
        for index in ops.minibatches(len(batch.x), self.config.batch_size, self.rng):
            part = batch if index is None else batch.take(self.to_device(index))
            grad, *values = self.gradient(part.columns(), [hp["ent_coef"], hp["vf_coef"]])
            norms.append(self.optimizer.step(grad, hp["policy_lr"]))
            terms.append(torch.stack(values))
        total, policy, value, entropy = torch.stack(terms).mean(0).tolist()
        return {
            "opt/loss/total": total,
            "opt/loss/policy": policy,
            "opt/loss/value": value,
            "opt/policy/entropy": entropy,
            "opt/grads/norm/all": float(torch.stack(norms).mean()),
            **{f"hp/{name}": value for name, value in hp.items()},
        }

    def _prepare(self, rollout: Rollout) -> Batch:
        cfg, valid = self.config, rollout.valid
        reward = self.normalized_reward(rollout)
        sum_up = ops.returns_to_go if cfg.returns_type == "mc:rtg" else ops.episode_returns
        returns = sum_up(reward, rollout.done, valid, cfg.gamma)[valid]
        x = self.net.encode(self.to_device(rollout.valid_obs()))
        weight = returns
        if self.net.critic_head is not None:
            with torch.no_grad():
                weight = returns - self.net.forward_parts(x)[1].cpu().numpy()
        if cfg.normalize_returns:
            weight = ops.standardize(weight)
        return Batch(
            x=x,
            actions=self.to_device(rollout.actions[valid]),
            weight=self.to_device(weight),
            returns=self.to_device(returns),
            mask=None if rollout.mask is None else self.to_device(rollout.mask[:-1][valid]),
        )
