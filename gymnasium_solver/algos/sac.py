"""SAC: soft actor-critic (Haarnoja et al. 2018b), for continuous and for discrete actions.

One update: critics towards reward plus the next soft value, by target critics that follow slowly;
the actor towards actions that are valued highly and keep its entropy; the entropy's weight towards
a target entropy. The critics are one stack, the lowest of their values counts.

Box actions: a Gaussian squashed by tanh, learnt through its noise. Discrete actions (Christodoulou
2019): expectations over all actions are exact, forbidden actions have no part in any. Where this
departs from common code:
- A truncated episode bootstraps from its true final observation.
- Log deviations are clamped to [-20, 2]; alpha's gradient is taken on log alpha (as in SB3).
- `target_entropy_ratio` is of the largest entropy over the actions that are legal.
- `entropy_penalty_coef` (Zhou et al. 2022) holds the entropy near that of a slowly following copy
  of the actor; the paper takes the policy's that acted, which the replay would have to store.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, cast

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.algos.off_policy import OffPolicyLearner
from gymnasium_solver.algos.soft import SoftConfig, learn_alpha
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule, scheduled
from gymnasium_solver.config.schema import Count, Float
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critics import ActorCritics, bounded_width, squash
from gymnasium_solver.nets.stacked import StackedMLP
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.distributions import MASKED_LOGIT


class SACConfig(SoftConfig):
    tau: Annotated[Float, Field(gt=0, le=1)] = 0.005
    """Share by which the target critics follow at every update. Higher: faster, less steady."""
    policy_delay: Count = 1
    """Critic updates for each update of the actor and the temperature. More: steadier, faster."""
    spectral_norm: bool = False
    """Divide the critics' weights by their largest singular value: smoother, less able values."""
    target_entropy_ratio: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.constant(0.98)
    """Discrete actions: share of the largest entropy that target_entropy auto aims at. Higher:
    explores more; the paper's 0.98 is nearly uniform."""
    entropy_penalty_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Discrete actions: penalty on sudden changes of the entropy. Higher: steadier, slower."""


# -- Box actions ----------------------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: nn.Module, batch: Batch, next_noise: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, the mean value and the absolute errors [B]."""
    with torch.no_grad():
        next_x = net.cast(batch.next_x)
        next_actions, next_log_prob = squash(net.actor(next_x), next_noise)
        next_q = target(torch.cat([next_x, next_actions], dim=1)).squeeze(2).amin(0)
        wanted = batch.reward + batch.discount * (next_q - alpha * next_log_prob)
    q = net.critic(torch.cat([net.cast(batch.x), batch.actions], dim=1)).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


def actor_loss(net: ActorCritics, x: Tensor, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and an estimate of the entropy."""
    x = net.cast(x)
    actions, log_prob = squash(net.actor(x), noise)
    q = net.critic(torch.cat([x, actions], dim=1)).squeeze(2).amin(0)
    return (alpha * log_prob - q).mean(), -log_prob.detach().mean()


# -- discrete actions -----------------------------------------------------------------------------


def legal_log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        logits = logits.masked_fill(~mask, MASKED_LOGIT)
    return torch.log_softmax(logits, dim=1)


def soft_value(log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """Expected value plus weighted entropy [B], of probabilities and values [B, A]."""
    return (log_probs.exp() * (q - alpha * log_probs)).sum(1)


def discrete_critic_loss(
    net: ActorCritics, target: nn.Module, batch: Batch, next_mask: Tensor | None, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        next_x = net.cast(batch.next_x)
        log_probs = legal_log_probs(net.actor(next_x), next_mask)
        next_value = soft_value(log_probs, target(next_x).amin(0), alpha)
        wanted = batch.reward + batch.discount * next_value
    q_all = net.critic(net.cast(batch.x))  # [n, B, A]
    index = batch.actions.view(1, -1, 1).expand(len(q_all), -1, 1)
    return ops.critics_loss(q_all.gather(2, index).squeeze(2), wanted, batch.weight)


def discrete_actor_loss(
    net: ActorCritics,
    steady_actor: nn.Module | None,
    x: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    penalty_coef: Tensor,
) -> tuple[Tensor, Tensor]:
    x = net.cast(x)
    log_probs = legal_log_probs(net.actor(x), mask)
    with torch.no_grad():
        q = net.critic(x).amin(0)
    loss = -soft_value(log_probs, q, alpha).mean()
    entropy = -(log_probs.exp() * log_probs).sum(1)
    if steady_actor is not None:
        with torch.no_grad():
            steady = legal_log_probs(steady_actor(x), mask)
            wanted = -(steady.exp() * steady).sum(1)
        loss = loss + penalty_coef * 0.5 * (entropy - wanted).square().mean()
    return loss, entropy.detach().mean()


# -------------------------------------------------------------------------------------------------


class SAC(OffPolicyLearner):
    Config = SACConfig
    net: ActorCritics
    policy: SoftPolicy
    target: StackedMLP

    def __init__(
        self,
        config: SACConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: SACConfig = config
        self.n_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 0
        self.width = self.n_actions or bounded_width(action_space, "sac", config.env_id)
        self.net = ActorCritics(
            observation_space,
            n_actor_outputs=self.n_actions or 2 * self.width,
            n_critics=config.n_critics,
            n_critic_actions=0 if self.n_actions else self.width,
            n_critic_outputs=self.n_actions or 1,
            **self.network._asdict(),
            critic_hidden_dims=config.critic_hidden_dims,
            alpha=config.first_alpha,
            spectral_norm=config.spectral_norm,
            normalize_obs=config.normalize_obs,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = SoftPolicy(
            self.net, observation_space, action_space, self.act_rng, config.noise_correlation
        )
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic)
        if self.net.temperature is not None:
            free = {"max_grad_norm": None, "weight_decay": 0.0}
            self.alpha_optimizer = self.add_optimizer("alpha", self.net.temperature, **free)
        self.target = cast(StackedMLP, self.set_target(self.critic_optimizer))
        self.steady_actor = None
        if self.n_actions and any(config.entropy_penalty_coef.values):
            self.steady_actor = self.set_target(self.actor_optimizer)
        critic, steady = self.net.critic, _tensors(self.steady_actor)
        self.critic_gradient = LossGradient(
            self._critic_loss,
            self.critic_optimizer.params,
            record=self.may_record,
            constants=[*self.net.actor.parameters(), *_tensors(self.target), *critic.buffers()],
        )
        self.actor_gradient = LossGradient(
            self._actor_loss,
            self.actor_optimizer.params,
            record=self.may_record,
            constants=[*_tensors(critic), *steady],
        )

    def _critic_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        batch, rest = Batch(*columns[:6]), columns[6:]
        if self.n_actions:
            next_mask = rest[0] if rest else None
            terms = discrete_critic_loss(self.net, self.target, batch, next_mask, coefficients[0])
        else:
            terms = critic_loss(self.net, self.target, batch, rest[0], coefficients[0])
        return terms[0], list(terms)

    def _actor_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        x, *rest = columns
        if self.n_actions:
            mask = rest[0] if rest else None
            terms = discrete_actor_loss(self.net, self.steady_actor, x, mask, *coefficients)
        else:
            terms = actor_loss(self.net, x, rest[0], coefficients[0])
        return terms[0], list(terms)

    # -- the update -------------------------------------------------------------------------

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, Any]:
        """Take a rollout in and do the updates that are due; the metrics of these, by name."""
        hp = self.scheduled_values(env_steps, total_steps)
        n_updates = self.remember(rollout, env_steps)
        samples = self.batches(n_updates, hp) if n_updates else ()
        steps = [self._learn(sample, hp) for sample in samples]
        return ops.mean_metrics(steps) | {f"hp/{name}": value for name, value in hp.items()}

    def _learn(self, sample: Sample, hp: dict[str, float]) -> dict[str, Any]:
        """One update of everything, from one batch."""
        cfg, net = self.config, self.net
        batch = Batch.of(self, sample)
        alpha = hp["ent_coef"] if net.temperature is None else net.temperature.alpha
        if cfg.spectral_norm:
            net.critic.power_iteration()
            self.target.power_iteration()

        columns = [*batch, *self._next_extras(sample)]
        grad, loss, q_mean, error = self.critic_gradient(columns, [alpha])
        norm = self.critic_optimizer.step(grad, hp.get("critic_lr", hp["policy_lr"]))
        metrics: dict[str, Any] = {
            "opt/loss/critic": loss,
            "opt/q/mean": q_mean,
            "opt/grads/norm/critic": norm,
        }
        if cfg.prioritized:
            assert self.memory is not None
            self.memory.update_priorities(sample.index, error.cpu().numpy())

        if self.critic_optimizer.n_steps % cfg.policy_delay == 0:
            extras = self._extras(sample)
            coefficients = [alpha, hp["entropy_penalty_coef"]] if self.n_actions else [alpha]
            grad, loss, entropy = self.actor_gradient([batch.x, *extras], coefficients)
            norm = self.actor_optimizer.step(grad, hp["policy_lr"])
            metrics |= {"opt/loss/policy": loss, "opt/grads/norm/policy": norm}
            metrics |= {"opt/policy/entropy": entropy, "opt/policy/alpha": alpha}
            if net.temperature is not None:
                gap = entropy - self._target_entropy(hp, extras[0] if extras else None)
                lr = hp.get("alpha_lr", hp["policy_lr"])
                bounds = (cfg.log_alpha_min, cfg.log_alpha_max)
                loss = learn_alpha(net.temperature, self.alpha_optimizer, gap, lr, bounds)
                metrics["opt/loss/alpha"] = loss
        self.update_target(cfg.tau)
        return metrics

    def _next_extras(self, sample: Sample) -> list[Tensor]:
        """What the critics' loss needs besides the batch: noise, or the legal next actions."""
        if not self.n_actions:
            return [self._noise()]
        return [] if sample.next_mask is None else [self.to_device(sample.next_mask)]

    def _extras(self, sample: Sample) -> list[Tensor]:
        """What the actor's loss needs besides observations: noise, or the legal actions."""
        if not self.n_actions:
            return [self._noise()]
        assert self.memory is not None
        mask = self.memory.replay.masks(sample.index)
        return [] if mask is None else [self.to_device(mask)]

    def _noise(self) -> Tensor:
        shape = (self.config.batch_size, self.width)
        return self.to_device(self.rng.standard_normal(shape, dtype=np.float32))

    def _target_entropy(self, hp: dict[str, float], mask: Tensor | None) -> float:
        if "target_entropy" in hp:
            return hp["target_entropy"]
        if not self.n_actions:
            return -float(self.width)
        largest = math.log(self.n_actions) if mask is None else float(mask.sum(1).log().mean())
        return hp["target_entropy_ratio"] * largest


def _tensors(module: nn.Module | None) -> list[Tensor]:
    return [] if module is None else [*module.parameters(), *module.buffers()]
