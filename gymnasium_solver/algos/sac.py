"""SAC: soft actor-critic (Haarnoja et al. 2018b), for continuous and discrete actions.

An update trains the critics on the soft Bellman target, using slowly updated target critics; then
the actor, to maximise value plus entropy; then the temperature, to hold the entropy at its target.
The critics are stacked into one batched module, and the minimum of their values is used.

Box actions: a tanh-squashed Gaussian with the reparameterisation trick, or state-dependent
exploration (`sde`, nets/sde.py). With `recurrent`, all networks learn from sequences of the replay
(algos/batch_rows.py). Discrete actions
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

from torch import Tensor

from gymnasium_solver.algos.configs.sac import SACConfig
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    actor_turn,
    add_alpha,
    alpha_of,
    build_soft_networks,
    for_actor,
    for_critics,
    learn_alpha,
    moments_in,
    next_values,
    numbered,
    renamed,
    soft_policy,
    taken_values,
    target_entropy,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.algos.soft_losses import (
    actor_loss,
    critic_loss,
    discrete_actor_loss,
    discrete_critic_loss,
)
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import MOMENTUM, take_moments
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.actions import DiscreteActions


class SAC(ReplayLearner):
    Config = SACConfig
    config: SACConfig
    net: ActorCritics
    policy: SoftPolicy
    n_actions: int
    width: int

    def build(self) -> None:
        cfg, defaults = self.config, SACConfig.model_fields
        is_discrete = isinstance(self.actions, DiscreteActions)
        for name in ("sde", "log_std_bound", "target_std", "noise_repeat"):
            if is_discrete and getattr(cfg, name) != defaults[name].default:
                raise ConfigError(
                    f"{name}: needs real-valued actions (a Box), not {self.action_space}"
                )
        self.net = build_soft_networks(
            self,
            critic_norm="spectral" if cfg.spectral_norm else None,
            sde_log_std_init=cfg.sde_log_std_init if cfg.sde else None,
            log_std_bound=None if is_discrete else cfg.log_std_bound,
        )
        self.policy = soft_policy(self, cfg.sde_sample_freq)
        has_steady = self.n_actions and any(cfg.entropy_penalty_coef.values)
        self.actor = self.add_descent(
            "policy", self.actor_loss, self.net.actor, tau=cfg.tau if has_steady else None,
            record=cfg.has_short_sequences,
        )  # fmt: skip
        self.critic = self.add_descent(
            "critic", self.critic_loss, self.net.critic, tau=cfg.tau, record=cfg.has_short_sequences
        )
        self.alpha = add_alpha(self)
        self.target = cast(Critics, self.critic.target)
        self.steady_actor = cast(Actor, self.actor.target) if has_steady else None
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        loss = discrete_critic_loss if self.n_actions else critic_loss
        total, q, errors, moments = loss(self.net, self.target, batch, c["alpha"], self.burn_in)
        return total, {"loss": total, "q": q, "errors": errors} | numbered(moments)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        if self.n_actions:
            total, entropy, moments = discrete_actor_loss(
                self.net, self.steady_actor, batch, c, self.burn_in
            )
        else:
            total, entropy, moments = actor_loss(self.net, batch, c["alpha"], self.burn_in)
        return total, {"loss": total, "entropy": entropy} | numbered(moments)

    # -- the update -------------------------------------------------------------------------

    def step(self, batch: Any, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and their targets, and in its turn the actor and the temperature:
        after them, or with `actor_first` before them."""
        cfg, net = self.config, self.net
        if cfg.spectral_norm:
            net.critic.mlps.power_iteration()
            self.target.mlps.power_iteration()
        if net.actor.sde is not None:  # one matrix for the whole batch, as in SB3
            net.actor.sde.draw.copy_(self.normal_noise(*net.actor.sde.draw.shape))
        metrics = self._train_actor(batch, hp) if trains_actor and cfg.actor_first else {}
        given = for_critics(batch, self._noise(batch))
        numbers = {"alpha": alpha_of(self, hp)}
        steps = self.critic(given, numbers, hp.get("critic_lr", hp["policy_lr"]))
        take_moments(net.critic, moments_in(steps.by_sample))
        metrics |= renamed(steps.last(), CRITIC_METRICS)
        if trains_actor and not cfg.actor_first:
            metrics |= self._train_actor(batch, hp)
        return Learnt(metrics, steps.by_sample["errors"])

    def _train_actor(self, batch: Any, hp: Hp) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        alpha = alpha_of(self, hp)
        numbers = {"alpha": alpha}
        if self.n_actions:
            numbers["penalty_coef"] = hp["entropy_penalty_coef"]
        given = for_actor(batch, self._noise(batch), has_next=self.config.block == "flash")
        steps = self.actor(given, numbers, hp["policy_lr"])
        take_moments(self.net.actor, moments_in(steps.by_sample), self._actor_momentum)
        found = steps.last()
        metrics = {**renamed(found, ACTOR_METRICS), "opt/policy/alpha": alpha}
        if self.alpha is not None:
            gap = found["entropy"] - target_entropy(self, hp, batch)
            like = self.actor if self.config.actor_first else self.critic  # one that has stepped
            metrics |= learn_alpha(self, self.alpha, like, gap, hp)
        return metrics

    @property
    def _actor_momentum(self) -> float:
        """Of the actor's batch norms. In XQC they move at every update, its weights with a delay;
        here both do, so a move counts as several."""
        cfg = self.config
        return MOMENTUM if cfg.block == "flash" else 1.0 - (1.0 - MOMENTUM) ** cfg.policy_delay

    def forward_all(self, batch: Any) -> Tensor | None:
        return taken_values(self.net, batch, self.burn_in)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)

    def _noise(self, batch: Any) -> Tensor | None:
        """Noise for sampling actions; discrete actions need none, and state-dependent exploration
        has its own."""
        if self.n_actions or self.config.sde:
            return None
        return self.normal_noise(*batch.reward.shape, self.width)
