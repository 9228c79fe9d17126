"""CrossQ: SAC without target networks, by batch normalisation done right (Bhatt et al. 2024).

The critics see (s, a) and (s', a') in one pass, so that both are normalised by moments of the same
mixture; that makes targets from the critics themselves steady, and learning fast without a high
ratio of updates. Batch renormalisation stands before every linear layer of critics and actor; Adam
forgets faster (beta1 0.5), the actor moves every third update, critics are wide. Next actions, the
values the actor climbs, and acting use running moments. Where this departs from the authors' code:
a truncated episode bootstraps from its true final observation; log deviations are clamped to
[-20, 2]; layers are initialised as torch does; Box actions only.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.algos.off_policy import OffPolicyLearner
from gymnasium_solver.algos.soft import SoftConfig, learn_alpha
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule
from gymnasium_solver.config.schema import Count, Float, NonNegativeInt
from gymnasium_solver.config.types import HiddenDims
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.actor_critics import ActorCritics, bounded_width, squash
from gymnasium_solver.nets.renorm import take_moments, train_pass
from gymnasium_solver.policies.continuous import SoftPolicy

BETA1 = 0.5  # of Adam


class CrossQConfig(SoftConfig):
    policy_lr: PositiveSchedule = Schedule.constant(1e-3)
    """Learning rate. Higher: faster, until it becomes unstable."""
    critic_hidden_dims: HiddenDims = (1024, 1024)
    """Width of each hidden layer of the critics. Wider: learns from fewer steps, each slower."""
    policy_delay: Count = 3
    """Critic updates for each update of the actor and the temperature. More: steadier, faster."""
    renorm_warmup: NonNegativeInt = 100_000
    """Updates with plain batch norm, before running moments correct the batch's."""
    renorm_r_max: Annotated[Float, Field(ge=1)] = 3.0
    """Largest correction of a batch's scale. 1: none."""
    renorm_d_max: Annotated[Float, Field(ge=0)] = 5.0
    """Largest correction of a batch's mean, in deviations. 0: none."""


def critic_loss(
    net: ActorCritics, batch: Batch, next_noise: Tensor, alpha: Tensor, r_max: Tensor, d_max: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """[the loss, the mean value, the absolute errors [B]], and the moments of the critics."""
    next_x = net.cast(batch.next_x)
    with torch.no_grad():
        next_actions, next_log_prob = squash(net.actor(next_x), next_noise)
    now = torch.cat([net.cast(batch.x), batch.actions], dim=1)
    following = torch.cat([next_x, next_actions], dim=1)
    both, moments = train_pass(net.critic.layers, torch.cat([now, following]), r_max, d_max)
    halves = both.view(len(both), 2, -1)  # [n, now and next, B]
    next_value = halves[:, 1].detach().amin(0) - alpha * next_log_prob
    wanted = batch.reward + batch.discount * next_value
    return list(ops.critics_loss(halves[:, 0], wanted, batch.weight)), moments


def actor_loss(
    net: ActorCritics, x: Tensor, noise: Tensor, alpha: Tensor, r_max: Tensor, d_max: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """[the loss, an estimate of the entropy], and the moments of the actor."""
    x = net.cast(x)
    outputs, moments = train_pass(net.actor, x, r_max, d_max)
    actions, log_prob = squash(outputs, noise)
    q = net.critic(torch.cat([x, actions], dim=1)).squeeze(2).amin(0)
    return [(alpha * log_prob - q).mean(), -log_prob.detach().mean()], moments


class CrossQ(OffPolicyLearner):
    Config = CrossQConfig
    net: ActorCritics
    policy: SoftPolicy

    def __init__(
        self,
        config: CrossQConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: CrossQConfig = config
        self.width = bounded_width(action_space, "crossq", config.env_id)
        self.net = ActorCritics(
            observation_space,
            n_actor_outputs=2 * self.width,
            n_critics=config.n_critics,
            n_critic_actions=self.width,
            **self.network._asdict(),
            critic_hidden_dims=config.critic_hidden_dims,
            alpha=config.first_alpha,
            renorm=True,
            normalize_obs=config.normalize_obs,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = SoftPolicy(
            self.net, observation_space, action_space, self.act_rng, config.noise_correlation
        )
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor, beta1=BETA1)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic, beta1=BETA1)
        if self.net.temperature is not None:
            free = {"max_grad_norm": None, "weight_decay": 0.0}
            self.alpha_optimizer = self.add_optimizer("alpha", self.net.temperature, **free)
        actor, critic = self.net.actor, self.net.critic
        self.critic_gradient = LossGradient(
            self._critic_loss,
            self.critic_optimizer.params,
            record=self.may_record,
            constants=[*actor.parameters(), *actor.buffers(), *critic.buffers()],
        )
        self.actor_gradient = LossGradient(
            self._actor_loss,
            self.actor_optimizer.params,
            record=self.may_record,
            constants=[*critic.parameters(), *critic.buffers(), *actor.buffers()],
        )

    def _critic_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        *batch, next_noise = columns
        terms, moments = critic_loss(self.net, Batch(*batch), next_noise, *coefficients)
        return terms[0], [*terms, *moments]

    def _actor_loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms, moments = actor_loss(self.net, *columns, *coefficients)
        return terms[0], [*terms, *moments]

    # -- the update -------------------------------------------------------------------------

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, Any]:
        """Take a rollout in and do the updates that are due; the metrics of these, by name."""
        hp = self.scheduled_values(env_steps, total_steps)
        n_updates = self.remember(rollout, env_steps)
        samples = self.batches(n_updates, hp) if n_updates else ()
        steps = [self._learn(sample, hp) for sample in samples]
        return ops.mean_metrics(steps) | {f"hp/{name}": value for name, value in hp.items()}

    def _learn(self, sample: Sample, hp: dict[str, float]) -> dict[str, Any]:
        """One update of the critics and, if it is its turn, of the actor and the temperature."""
        cfg, net = self.config, self.net
        batch = Batch.of(self, sample)
        alpha = hp["ent_coef"] if net.temperature is None else net.temperature.alpha
        bounds = self._bounds(self.critic_optimizer.n_steps)
        grad, loss, q_mean, error, *moments = self.critic_gradient(
            [*batch, self._noise()], [alpha, *bounds]
        )
        norm = self.critic_optimizer.step(grad, hp.get("critic_lr", hp["policy_lr"]))
        take_moments(net.critic.layers, moments)
        metrics: dict[str, Any] = {
            "opt/loss/critic": loss,
            "opt/q/mean": q_mean,
            "opt/grads/norm/critic": norm,
        }
        if cfg.prioritized:
            assert self.memory is not None
            self.memory.update_priorities(sample.index, error.cpu().numpy())

        if self.critic_optimizer.n_steps % cfg.policy_delay == 0:
            bounds = self._bounds(self.actor_optimizer.n_steps)
            grad, loss, entropy, *moments = self.actor_gradient(
                [batch.x, self._noise()], [alpha, *bounds]
            )
            norm = self.actor_optimizer.step(grad, hp["policy_lr"])
            take_moments(net.actor, moments)
            metrics |= {"opt/loss/policy": loss, "opt/grads/norm/policy": norm}
            metrics |= {"opt/policy/entropy": entropy, "opt/policy/alpha": alpha}
            if net.temperature is not None:
                gap = entropy - hp.get("target_entropy", -self.width)
                lr = hp.get("alpha_lr", hp["policy_lr"])
                limits = (cfg.log_alpha_min, cfg.log_alpha_max)
                loss = learn_alpha(net.temperature, self.alpha_optimizer, gap, lr, limits)
                metrics["opt/loss/alpha"] = loss
        return metrics

    def _bounds(self, n_steps: int) -> tuple[float, float]:
        """Of the corrections r and d, after so many updates."""
        cfg = self.config
        return (1.0, 0.0) if n_steps < cfg.renorm_warmup else (cfg.renorm_r_max, cfg.renorm_d_max)

    def _noise(self) -> Tensor:
        shape = (self.config.batch_size, self.width)
        return self.to_device(self.rng.standard_normal(shape, dtype=np.float32))
