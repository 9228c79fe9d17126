"""PPO: proximal policy optimisation with a clipped objective (Schulman et al. 2017).

One update: values and log-probabilities of the rollout in one pass, GAE, then `n_epochs` passes
over shuffled minibatches. Where this departs from common code:
- Log-probabilities and values of the rollout are computed here, not while acting, so acting runs
  the actor alone and the first ratio is exactly 1.
- Truncated episodes bootstrap from their true final observation (see ops.gae).
- Minibatches are of nearly equal size; reset rows are never in one.
- Loss metrics describe the policy after the update, measured once over the whole rollout (of
  images over a part of it).
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule
from gymnasium_solver.config.schema import (
    ActorCriticFields,
    Count,
    Float,
    LearnerConfig,
    MinibatchFields,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.distributions import MASKED_LOGIT, Distribution

IMAGES_MEASURED = 512  # of a rollout, for the metrics of an update


class PPOConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
    n_steps: Count = 2048
    """Rows each env contributes to a rollout. More: better advantage estimates, rarer updates."""
    n_epochs: Count = 10
    """Passes over each rollout. More: better use of the data, until the policy drifts too far."""
    gae_lambda: Annotated[Float, Field(ge=0, le=1)] = 0.95
    """Trade-off of the advantage estimate: 1 is all return (noisy), 0 is all critic (biased)."""
    clip_range: PositiveSchedule = Schedule.constant(0.2)
    """How far a probability ratio may move before the objective goes flat. Higher: bolder."""
    clip_range_vf: PositiveSchedule | None = None
    """Clip the value's move likewise, in units of the return. null: no clipping."""
    vf_coef: NonNegativeSchedule = Schedule.constant(0.5)
    """Weight of the value loss. Higher: the critic learns faster, at the actor's cost if shared."""
    target_kl: Annotated[Float, Field(gt=0)] | None = None
    """End an update early once the policy has moved 1.5 times this far. null: never."""
    normalize_advantages: Literal["rollout", "batch", "off"] = "rollout"
    """Standardise advantages over the rollout, over each minibatch, or not at all."""


class Batch(NamedTuple):
    x: Tensor  # encoded observations [B, width]
    actions: Tensor  # [B] or [B, A]
    log_prob: Tensor  # under the policy that acted [B]
    advantage: Tensor  # [B]
    returns: Tensor  # [B]
    value: Tensor  # before the update [B]
    mask: Tensor | None = None  # legal actions [B, A], where the env has masks

    def take(self, index: Tensor) -> "Batch":
        return Batch(*(column[index] for column in self.columns()))

    def columns(self) -> list[Tensor]:
        return [column for column in self if column is not None]


class Coefficients(NamedTuple):
    """What the loss reads of the config at this point of the schedules, as scalar tensors.

    None leaves a term out.
    """

    clip_range: Tensor
    vf_coef: Tensor
    ent_coef: Tensor | None = None
    clip_range_vf: Tensor | None = None


class LossTerms(NamedTuple):
    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    log_ratio: Tensor  # [B]


def ppo_loss(net: ActorCritic, dist: Distribution, batch: Batch, c: Coefficients) -> LossTerms:
    outputs, value = net(batch.x)
    if batch.mask is not None:
        outputs = outputs.masked_fill(~batch.mask, MASKED_LOGIT)
    log_prob, entropy = dist.log_prob_entropy(outputs, net.log_std, batch.actions)
    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - c.clip_range, 1 + c.clip_range)
    policy_loss = -torch.min(ratio * batch.advantage, clipped_ratio * batch.advantage).mean()

    error = (value - batch.returns).square()
    if c.clip_range_vf is not None:
        near = batch.value + (value - batch.value).clamp(-c.clip_range_vf, c.clip_range_vf)
        error = torch.max(error, (near - batch.returns).square())
    value_loss = error.mean()

    entropy_mean = entropy.mean()
    total = policy_loss + c.vf_coef * value_loss
    if c.ent_coef is not None:
        total = total - c.ent_coef * entropy_mean
    return LossTerms(total, policy_loss, value_loss, entropy_mean, log_ratio)


def approx_kl(log_ratio: Tensor) -> Tensor:
    """KL(old || new), the low-variance estimator (r - 1) - log r."""
    return (log_ratio.exp() - 1 - log_ratio).mean()


class PPO(Learner):
    Config = PPOConfig
    net: ActorCritic
    policy: ActorPolicy

    def __init__(
        self,
        config: PPOConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: PPOConfig = config
        self.net, self.policy, self.optimizer = self.build_actor_critic()
        has_entropy_bonus = any(config.ent_coef.values)
        self.coefficient_names = [
            name
            for name in Coefficients._fields
            if name in self.schedules and (name != "ent_coef" or has_entropy_bonus)
        ]
        self.gradient = LossGradient(self._loss, self.optimizer.params, record=self.may_record)

    def _loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        named = Coefficients(**dict(zip(self.coefficient_names, coefficients, strict=True)))
        terms = ppo_loss(self.net, self.policy.distribution, Batch(*columns), named)
        return terms.total, [approx_kl(terms.log_ratio)] if self.config.target_kl else []

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Learn from one rollout; the metrics of the update, by name."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        cfg = self.config
        hp = self.scheduled_values(env_steps, total_steps)
        coefficients = {name: hp[name] for name in self.coefficient_names}
        batch, explained_var = self._prepare(rollout)
        norms: list[Tensor] = []
        kl_stop = False
        n_rows = rollout.valid.size if self.device.type == "cuda" else None
        for _ in range(cfg.n_epochs):
            for index in ops.minibatches(len(batch.x), cfg.batch_size, self.rng, n_rows):
                part = batch if index is None else batch.take(self.to_device(index))
                if cfg.normalize_advantages == "batch":
                    part = part._replace(advantage=_standardize(part.advantage))
                grad, *kl = self.gradient(part.columns(), list(coefficients.values()))
                kl_stop = bool(kl) and float(kl[0]) > 1.5 * (cfg.target_kl or 0)
                if kl_stop:
                    break
                norms.append(self.optimizer.step(grad, hp["policy_lr"]))
            if kl_stop:
                break
        measured = self._measure(batch, coefficients)
        if norms:
            measured["opt/grads/norm/all"] = torch.stack(norms).mean()
        values = torch.stack(list(measured.values())).tolist()  # the one wait for the device
        return {
            "opt/grads/norm/all": 0.0,
            **dict(zip(measured, values, strict=True)),
            "opt/value/explained_var": explained_var,
            "opt/ppo/kl_stop_triggered": float(kl_stop),
            **{f"hp/{name}": value for name, value in hp.items()},
        }

    @torch.no_grad()
    def _measure(self, batch: Batch, coefficients: dict[str, float]) -> dict[str, Tensor]:
        """The loss and its parts after the update; of images on evenly spaced rows of the rollout,
        since all of them would take the time of another third of an epoch."""
        if self.net.layout is not None and len(batch.x) > IMAGES_MEASURED:
            n = len(batch.x)
            batch = batch.take(
                torch.arange(IMAGES_MEASURED, device=self.device) * n // IMAGES_MEASURED
            )
        numbers = self.to_device(np.array(list(coefficients.values()), np.float32)).unbind()
        scalars = dict(zip(coefficients, numbers, strict=True))
        after = ppo_loss(self.net, self.policy.distribution, batch, Coefficients(**scalars))
        moved = (after.log_ratio.exp() - 1).abs()
        return {
            "opt/loss/total": after.total,
            "opt/loss/policy": after.policy,
            "opt/loss/value": after.value,
            "opt/policy/entropy": after.entropy,
            "opt/ppo/approx_kl": approx_kl(after.log_ratio),
            "opt/ppo/clip_fraction": (moved > coefficients["clip_range"]).float().mean(),
        }

    def _prepare(self, rollout: Rollout) -> tuple[Batch, float]:
        """The rollout as tensors to learn from, and how well the critic had foreseen it."""
        cfg, valid, dist = self.config, rollout.valid, self.policy.distribution
        reward = self.normalized_reward(rollout)
        n_rows, n_envs = reward.shape
        with torch.no_grad():
            x = self.encoded_obs(rollout)
            outputs, values = self.net.forward_parts(x)
            rows = self.to_device(np.flatnonzero(valid))
            actions = self.to_device(rollout.actions).flatten(0, 1)[rows]
            outputs = outputs[rows]
            mask = None
            if rollout.mask is not None:
                mask = self.to_device(rollout.mask[:-1][valid])
                outputs = outputs.masked_fill(~mask, MASKED_LOGIT)
            log_prob, _ = dist.log_prob_entropy(outputs, self.net.log_std, actions)
        value_grid = values.reshape(n_rows + 1, n_envs).cpu().numpy()
        advantage = ops.gae(
            reward, value_grid, rollout.terminated, rollout.truncated, valid,
            cfg.gamma, cfg.gae_lambda,
        )[valid]  # fmt: skip
        value = value_grid[:-1][valid]
        returns = advantage + value
        if cfg.normalize_advantages == "rollout":
            advantage = ops.standardize(advantage)
        batch = Batch(
            x=x[rows],
            actions=actions,
            log_prob=log_prob,
            advantage=self.to_device(advantage),
            returns=self.to_device(returns),
            value=self.to_device(value),
            mask=mask,
        )
        return batch, ops.explained_variance(value, returns)


def _standardize(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)
