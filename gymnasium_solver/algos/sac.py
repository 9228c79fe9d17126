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

from gymnasium_solver.algos import soft
from gymnasium_solver.algos.configs.sac import SACConfig
from gymnasium_solver.algos.continuous import (
    Loss,
    actor_turn,
    next_values,
    noisy_policy,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import MOMENTUM
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.actions import DiscreteActions


class SAC(ReplayLearner):
    Config = SACConfig
    config: SACConfig
    net: ActorCritics
    policy: SoftPolicy
    n_actions: int  # 0 for a Box
    steady_actor: Actor | None  # one whose entropy the actor of discrete actions stays near

    def build(self) -> None:
        cfg, defaults = self.config, SACConfig.model_fields
        is_discrete = isinstance(self.actions, DiscreteActions)
        for name in ("sde", "log_std_bound", "target_std", "noise_repeat"):
            if is_discrete and getattr(cfg, name) != defaults[name].default:
                raise ConfigError(
                    f"{name}: needs real-valued actions (a Box), not {self.action_space}"
                )
        self.net = soft.build_soft_networks(
            self,
            critic_norm="spectral" if cfg.spectral_norm else None,
            sde_log_std_init=cfg.sde_log_std_init if cfg.sde else None,
            log_std_bound=None if is_discrete else cfg.log_std_bound,
        )
        self.policy = noisy_policy(
            self, SoftPolicy, cfg.noise_correlation,
            noise_repeat=cfg.noise_repeat, sde_sample_freq=cfg.sde_sample_freq,
        )  # fmt: skip
        has_steady = self.n_actions and any(cfg.entropy_penalty_coef.values)
        is_short = cfg.has_short_sequences
        self.actor = self.add_descent(
            "policy", self.actor_loss, self.net.actor,
            tau=cfg.tau if has_steady else None, record=is_short,
        )  # fmt: skip
        self.critic = self.add_descent(
            "critic", self.critic_loss, self.net.critic, tau=cfg.tau, record=is_short
        )
        self.alpha = soft.add_alpha(self)
        self.target = cast(Critics, self.critic.target)
        self.steady_actor = cast(Actor, self.actor.target) if has_steady else None
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        loss = soft.discrete_critic_loss if self.n_actions else soft.critic_loss
        return loss(self.net, self.target, batch, c, self.burn_in)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        if self.n_actions:
            return soft.discrete_actor_loss(self.net, batch, c, self.burn_in, self.steady_actor)
        return soft.actor_loss(self.net, batch, c, self.burn_in)

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
        found, errors = soft.train_critics(self, batch, hp)
        metrics |= found
        if trains_actor and not cfg.actor_first:
            metrics |= self._train_actor(batch, hp)
        return Learnt(metrics, errors)

    def _train_actor(self, batch: Any, hp: Hp) -> dict[str, Any]:
        cfg = self.config
        numbers = {"penalty_coef": hp["entropy_penalty_coef"]} if self.n_actions else {}
        like = self.actor if cfg.actor_first else self.critic  # one that has stepped
        # In XQC the actor's batch norms move at every update, its weights with a delay; here both
        # do, so a move counts as several.
        momentum = 1.0 - (1.0 - MOMENTUM) ** cfg.policy_delay
        momentum = MOMENTUM if cfg.block == "flash" else momentum
        return soft.train_actor(self, batch, hp, like, numbers, momentum=momentum)

    forward_all, next_values = taken_values, next_values
