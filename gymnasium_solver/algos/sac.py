"""SAC: soft actor-critic (Haarnoja et al. 2018b), for continuous and discrete actions.

An update trains the critics on the soft Bellman target, using slowly updated target critics; then
the actor, to maximise value plus entropy; then the temperature, to hold the entropy at its target.
The critics are stacked into one batched module, and the minimum of their values is used.

Box actions: a tanh-squashed Gaussian with the reparameterisation trick, or state-dependent
exploration (`sde`, nets/sde.py). Discrete actions
(Christodoulou 2019): expectations over actions are exact, and illegal actions are excluded from all
of them. Differences from common implementations:
- Truncated episodes bootstrap from their true final observation.
- Log standard deviations are clamped to [-20, 2]. The gradient of the temperature is taken with
  respect to log alpha (as in SB3).
- `target_entropy_ratio` refers to the maximum entropy over the legal actions.
- `entropy_penalty_coef` (Zhou et al. 2022) penalises the distance to the entropy of a slowly
  updated copy of the actor. The paper uses the entropy of the acting policy, which would have to be
  stored in the replay buffer.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.sac import SACConfig
from gymnasium_solver.algos.off_policy import OffPolicyLearner, ReplayBatch
from gymnasium_solver.algos.soft import learn_alpha
from gymnasium_solver.data.memory import Draw, Sample
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.optimizer import share_native
from gymnasium_solver.nets.actor_critics import ActorCritics, Critics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.spaces.actions import DiscreteActions, mask_tensor
from gymnasium_solver.spaces.observations import Space


class ActorBatch(NamedTuple):
    """Input of the actor's loss."""

    obs: Any  # tree of tensors [B, ...]
    mask: Tensor | None = None  # legal actions [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal [B, A], for Box actions


# -- Box actions ----------------------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        next_actions, next_log_prob = net.actor.sampled(next_x, batch.noise)
        next_q = target(next_x, next_actions).squeeze(2).amin(0)
        wanted = batch.reward + batch.discount * (next_q - alpha * next_log_prob)
    q = net.critic(net.encoder(batch.obs), batch.actions).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


def actor_loss(
    net: ActorCritics, obs: TensorObs, noise: Tensor | None, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss and an estimate of the entropy."""
    x = net.encoder(obs)
    actions, log_prob = net.actor.sampled(x, noise)
    q = net.critic(x, actions).squeeze(2).amin(0)
    return (alpha * log_prob - q).mean(), -log_prob.detach().mean()


# -- discrete actions -----------------------------------------------------------------------------


def legal_log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    return torch.log_softmax(mask_tensor(logits, mask), dim=1)


def soft_value(log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """Soft state value [B] from log-probabilities and Q-values [B, A]."""
    return (log_probs.exp() * (q - alpha * log_probs)).sum(1)


def discrete_critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        log_probs = legal_log_probs(net.actor(next_x), batch.next_mask)
        next_value = soft_value(log_probs, target(next_x).amin(0), alpha)
        wanted = batch.reward + batch.discount * next_value
    q_all = net.critic(net.encoder(batch.obs))  # [n, B, A]
    index = batch.actions.view(1, -1, 1).expand(len(q_all), -1, 1)
    return ops.critics_loss(q_all.gather(2, index).squeeze(2), wanted, batch.weight)


def discrete_actor_loss(
    net: ActorCritics,
    steady_actor: nn.Module | None,
    obs: TensorObs,
    mask: Tensor | None,
    alpha: Tensor,
    penalty_coef: Tensor,
) -> tuple[Tensor, Tensor]:
    x = net.encoder(obs)
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
    is_one_graph = True
    net: ActorCritics
    policy: SoftPolicy
    target: Critics

    def __init__(
        self,
        config: SACConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: SACConfig = config
        is_discrete = isinstance(self.actions, DiscreteActions)
        self.n_actions = self.actions.n if isinstance(self.actions, DiscreteActions) else 0
        if is_discrete and config.sde:
            raise ConfigError(f"sde: needs real-valued actions (a Box), not {action_space}")
        if not is_discrete:
            require_bounded_box(action_space, "sac", config.env_id, "Box or Discrete actions")
        self.width = self.n_actions or self.actions.shape[0]
        self.net = ActorCritics(
            observation_space,
            self.network,
            n_actor_outputs=self.n_actions or 2 * self.width,
            n_critics=config.n_critics,
            n_critic_actions=0 if self.n_actions else self.width,
            n_critic_outputs=self.n_actions or 1,
            critic_hidden_dims=config.critic_hidden_dims,
            alpha=config.first_alpha(is_discrete=is_discrete),
            spectral_norm=config.spectral_norm,
            sde_log_std_init=config.sde_log_std_init if config.sde else None,
            normalize_obs=config.obs_normalization,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = SoftPolicy(
            self.net,
            observation_space,
            self.actions,
            self.act_rng,
            config.noise_correlation,
            record=self.may_record_acting,
            compile=self.compiles,
            sde_sample_freq=config.sde_sample_freq,
        )
        self.forwards["act"] = self.policy.explorer
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic)
        if self.net.temperature is not None:
            free = {"max_grad_norm": None, "weight_decay": 0.0}
            self.alpha_optimizer = self.add_optimizer("alpha", self.net.temperature, **free)
        self.target = cast(Critics, self.set_target(self.critic_optimizer))
        self.steady_actor = None
        if self.n_actions and any(config.entropy_penalty_coef.values):
            self.steady_actor = self.set_target(self.actor_optimizer)
        critic, steady = self.net.critic, _tensors(self.steady_actor)
        drawn = list(self.net.actor.buffers())  # of state-dependent exploration
        self.critic_gradient = self.add_gradient(
            "critic",
            self._critic_loss,
            self.critic_optimizer,
            constants=[*_tensors(self.net.actor), *_tensors(self.target), *critic.buffers()],
        )
        self.actor_gradient = self.add_gradient(
            "policy",
            self._actor_loss,
            self.actor_optimizer,
            constants=[*_tensors(critic), *steady, *drawn],
        )

    def _critic_loss(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        loss = discrete_critic_loss if self.n_actions else critic_loss
        terms = loss(self.net, self.target, batch, *coefficients)
        return terms[0], list(terms)

    def _actor_loss(
        self, batch: ActorBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        if self.n_actions:
            steady = self.steady_actor
            terms = discrete_actor_loss(self.net, steady, batch.obs, batch.mask, *coefficients)
        else:
            terms = actor_loss(self.net, batch.obs, batch.noise, *coefficients)
        return terms[0], list(terms)

    # -- the update -------------------------------------------------------------------------

    def step_kind(self) -> bool:
        """Whether the next gradient step trains the actor too."""
        return (self.critic_optimizer.n_steps + 1) % self.config.policy_delay == 0

    def learn(
        self, batch: ReplayBatch, sample: Sample | Draw, hp: dict[str, float]
    ) -> dict[str, Any]:
        """Update the critics, actor, temperature and target networks on one batch."""
        cfg, net, timer = self.config, self.net, self.timer
        alpha = hp["ent_coef"] if net.temperature is None else net.temperature.alpha
        if cfg.spectral_norm:
            net.critic.mlps.power_iteration()
            self.target.mlps.power_iteration()
        if net.actor.sde is not None:  # one matrix for the whole batch, as in SB3
            net.actor.sde.draw.copy_(self.normal_noise(*net.actor.sde.draw.shape))

        with timer.detail("gradient"):
            grad, loss, q_mean, error = self.critic_gradient(self._with_noise(batch), [alpha])
        with timer.detail("optimiser"):
            lr = hp.get("critic_lr", hp["policy_lr"])
            norm = self.step_with_target(self.critic_optimizer, grad, lr, cfg.tau)
        metrics: dict[str, Any] = {
            "opt/loss/critic": loss,
            "opt/q/mean": q_mean,
            "opt/grads/norm/critic": norm,
        }
        self.set_priorities(sample, error)
        if self.critic_optimizer.n_steps % cfg.policy_delay == 0:
            metrics |= self._learn_actor(batch, sample, alpha, hp)
        if self.steady_actor is not None:
            self.update_target(cfg.tau, but=self.critic_optimizer)
        return metrics

    def _learn_actor(
        self, batch: ReplayBatch, sample: Sample | Draw, alpha: float | Tensor, hp: dict[str, float]
    ) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        cfg, net, timer = self.config, self.net, self.timer
        part = self._actor_batch(batch, sample)
        coefficients = [alpha, hp["entropy_penalty_coef"]] if self.n_actions else [alpha]
        with timer.detail("gradient"):
            grad, loss, entropy = self.actor_gradient(part, coefficients)
        with timer.detail("optimiser"):
            norm = self.actor_optimizer.step(grad, hp["policy_lr"])
        metrics = {
            "opt/loss/policy": loss,
            "opt/grads/norm/policy": norm,
            "opt/policy/entropy": entropy,
            "opt/policy/alpha": alpha,
        }
        if net.temperature is not None:
            gap = entropy - self._target_entropy(hp, part.mask)
            lr = hp.get("alpha_lr", hp["policy_lr"])
            bounds = (cfg.log_alpha_min, cfg.log_alpha_max)
            share_native(self.critic_optimizer, self.alpha_optimizer)
            loss = learn_alpha(net.temperature, self.alpha_optimizer, gap, lr, bounds)
            metrics["opt/loss/alpha"] = loss
        return metrics

    def forward_all(self, batch: ReplayBatch) -> None:
        self.net(batch.obs, None if self.n_actions else batch.actions)

    def _with_noise(self, batch: ReplayBatch) -> ReplayBatch:
        """Add the noise for sampling next actions; discrete actions need none, and state-dependent
        exploration has its own."""
        if self.n_actions or self.config.sde:
            return batch
        return batch._replace(noise=self.normal_noise(self.config.batch_size, self.width))

    def _actor_batch(self, batch: ReplayBatch, sample: Sample | Draw) -> ActorBatch:
        """The observations, with noise (Box) or legal actions (discrete)."""
        if self.config.sde:
            return ActorBatch(batch.obs)
        if not self.n_actions:
            return ActorBatch(batch.obs, noise=self.normal_noise(len(batch.reward), self.width))
        assert self.memory is not None
        if batch.mask is not None:
            return ActorBatch(batch.obs, mask=batch.mask)
        mask = self.memory.replay.masks(sample.index)
        return ActorBatch(batch.obs, mask=None if mask is None else self.to_device(mask))

    def _target_entropy(self, hp: dict[str, float], mask: Tensor | None) -> float | Tensor:
        if "target_entropy" in hp:
            return hp["target_entropy"]
        if not self.n_actions:
            return -float(self.width)
        largest = math.log(self.n_actions) if mask is None else mask.sum(1).log().mean()
        return hp["target_entropy_ratio"] * largest


def _tensors(module: nn.Module | None) -> list[Tensor]:
    return [] if module is None else [*module.parameters(), *module.buffers()]
