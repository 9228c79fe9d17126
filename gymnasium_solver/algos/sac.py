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

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from gymnasium_solver.algos.configs.sac import SACConfig
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    ActorBatch,
    actor_turn,
    add_alpha,
    alpha_of,
    build_soft_networks,
    learn_alpha,
    legal_log_probs,
    next_values,
    of_actions,
    renamed,
    soft_policy,
    soft_value,
    taken_values,
    target_entropy,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import ActorCritics, Critics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.actions import DiscreteActions

# -- Box actions ----------------------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        next_actions, next_log_prob = net.actor.sampled(next_x, batch.noise)
        following = net.head.lowest(target(next_x, next_actions))
        entropy = -(alpha * next_log_prob)
        wanted = net.head.target(following, batch.reward, batch.discount, entropy)
    outputs = net.critic(net.encoder(batch.obs), batch.actions)
    return net.head.critics_loss(outputs, wanted, batch.weight)


def actor_loss(
    net: ActorCritics, obs: TensorObs, noise: Tensor | None, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss and an estimate of the entropy."""
    x = net.encoder(obs)
    actions, log_prob = net.actor.sampled(x, noise)
    q = net.head.value(net.critic(x, actions)).amin(0)
    return (alpha * log_prob - q).mean(), -log_prob.detach().mean()


# -- discrete actions -----------------------------------------------------------------------------


def discrete_critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        log_probs = legal_log_probs(net.actor(next_x), batch.next_mask)
        lowest = net.head.value(target(next_x)).amin(0)  # [B, A]
        next_value = soft_value(log_probs, lowest, alpha)
        wanted = net.head.known(batch.reward + batch.discount * next_value)
    outputs = net.critic(net.encoder(batch.obs))  # [n, B, A], or [n, B, A, K]
    return net.head.critics_loss(of_actions(outputs, batch.actions), wanted, batch.weight)


def discrete_actor_loss(
    net: ActorCritics, steady_actor: nn.Module | None, batch: ActorBatch, c: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    x, mask = net.encoder(batch.obs), batch.mask
    log_probs = legal_log_probs(net.actor(x), mask)
    with torch.no_grad():
        q = net.head.value(net.critic(x)).amin(0)
    loss = -soft_value(log_probs, q, c["alpha"]).mean()
    entropy = -(log_probs.exp() * log_probs).sum(1)
    if steady_actor is not None:
        with torch.no_grad():
            steady = legal_log_probs(steady_actor(x), mask)
            wanted = -(steady.exp() * steady).sum(1)
        loss = loss + c["penalty_coef"] * 0.5 * (entropy - wanted).square().mean()
    return loss, entropy.detach().mean()


# -------------------------------------------------------------------------------------------------


class SAC(ReplayLearner):
    Config = SACConfig
    config: SACConfig
    net: ActorCritics
    policy: SoftPolicy
    n_actions: int
    width: int

    def build(self) -> None:
        cfg = self.config
        if cfg.sde and isinstance(self.actions, DiscreteActions):
            raise ConfigError(f"sde: needs real-valued actions (a Box), not {self.action_space}")
        self.net = build_soft_networks(
            self,
            critic_norm="spectral" if cfg.spectral_norm else None,
            sde_log_std_init=cfg.sde_log_std_init if cfg.sde else None,
        )
        self.policy = soft_policy(self, cfg.sde_sample_freq)
        has_steady = self.n_actions and any(cfg.entropy_penalty_coef.values)
        self.actor = self.add_descent(
            "policy", self.actor_loss, self.net.actor, tau=cfg.tau if has_steady else None
        )
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic, tau=cfg.tau)
        self.alpha = add_alpha(self)
        self.target = cast(Critics, self.critic.target)
        self.steady_actor = self.actor.target if has_steady else None
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(
        self, batch: ReplayBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = discrete_critic_loss if self.n_actions else critic_loss
        total, q, errors = loss(self.net, self.target, batch, c["alpha"])
        return total, {"loss": total, "q": q, "errors": errors}

    def actor_loss(
        self, batch: ActorBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.n_actions:
            total, entropy = discrete_actor_loss(self.net, self.steady_actor, batch, c)
        else:
            total, entropy = actor_loss(self.net, batch.obs, batch.noise, c["alpha"])
        return total, {"loss": total, "entropy": entropy}

    # -- the update -------------------------------------------------------------------------

    def step(self, batch: ReplayBatch, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and their targets, then in its turn the actor and the temperature."""
        cfg, net = self.config, self.net
        alpha = alpha_of(self, hp)
        if cfg.spectral_norm:
            net.critic.mlps.power_iteration()
            self.target.mlps.power_iteration()
        if net.actor.sde is not None:  # one matrix for the whole batch, as in SB3
            net.actor.sde.draw.copy_(self.normal_noise(*net.actor.sde.draw.shape))
        given, legal = batch._replace(noise=self._noise(batch), mask=None), batch.mask
        steps = self.critic(given, {"alpha": alpha}, hp.get("critic_lr", hp["policy_lr"]))
        metrics = renamed(steps.last(), CRITIC_METRICS)
        if trains_actor:
            part = ActorBatch(batch.obs, mask=legal, noise=self._noise(batch))
            metrics |= self._train_actor(part, alpha, hp)
        return Learnt(metrics, steps.by_sample["errors"])

    def _train_actor(self, batch: ActorBatch, alpha: float | Tensor, hp: Hp) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        numbers = {"alpha": alpha}
        if self.n_actions:
            numbers["penalty_coef"] = hp["entropy_penalty_coef"]
        found = self.actor(batch, numbers, hp["policy_lr"]).last()
        metrics = {**renamed(found, ACTOR_METRICS), "opt/policy/alpha": alpha}
        if self.alpha is not None:
            gap = found["entropy"] - target_entropy(self, hp, batch.mask)
            metrics |= learn_alpha(self, self.alpha, self.critic, gap, hp)
        return metrics

    def forward_all(self, batch: ReplayBatch) -> Tensor:
        return taken_values(self.net, batch)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)

    def _noise(self, batch: ReplayBatch) -> Tensor | None:
        """Noise for sampling actions; discrete actions need none, and state-dependent exploration
        has its own."""
        if self.n_actions or self.config.sde:
            return None
        return self.normal_noise(len(batch.reward), self.width)
