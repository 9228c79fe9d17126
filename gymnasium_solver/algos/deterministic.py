"""Shared parts of the deterministic actor-critics, TD3 and DDPG: losses, and the update.

An update trains the critics on the target critics' value of the target actor's action, with clipped
noise on it if the config has a `target_noise`. Every `policy_delay` updates, the actor is trained
to maximise the first critic, and the target networks are updated.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from gymnasium_solver.algos import continuous
from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.algos.continuous import Loss
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import batch_statistics
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box

# Correlation of the noise between two steps; for Ornstein-Uhlenbeck as in Lillicrap et al. 2016.
KEEPS = {"gaussian": 0.0, "ou": 0.85}


def critic_loss(
    net: ActorCritics, target_actor: Actor, target_critic: Critics, given: Any,
    c: Mapping[str, Tensor], burn_in: int = 0,
) -> Loss:  # fmt: skip
    """Towards the target critics' value of the target actor's action, with clipped noise on it if
    `c` has its size."""
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    with torch.no_grad(), batch_statistics(target_actor):
        next_actions = torch.tanh(target_actor.layers(rows.later(target_actor)))
        if "noise_std" in c:
            assert batch.noise is not None
            noise = (batch.noise * c["noise_std"]).clamp(-c["noise_clip"], c["noise_clip"])
            next_actions = (next_actions + noise).clamp(-1.0, 1.0)
    outputs, following, moments = continuous.both_critics(
        net, target_critic, rows, batch.actions, next_actions
    )
    with torch.no_grad():
        wanted = net.head.target(net.head.lowest(following), batch.reward, batch.discount)
    return continuous.fitted(net, rows, outputs, wanted, moments)


def actor_loss(net: ActorCritics, given: Any, burn_in: int = 0) -> Loss:
    """Minus the first critic's value of the actor's action."""
    rows = rows_of(net, given, burn_in)
    y, beside = continuous.seen_by_actor(net, rows)
    with batch_statistics(net.actor) as moments:
        actions = torch.tanh(net.actor.outputs(y, beside))
    loss = -rows.mean(net.head.value(net.critic.first(rows.now(net.critic), actions)))
    return loss, {"opt/loss/policy": loss, **continuous.numbered(moments)}


class DeterministicLearner(ReplayLearner):
    config: Any
    net: ActorCritics
    policy: DeterministicPolicy

    def build(self) -> None:
        cfg = self.config
        width = require_bounded_box(self.action_space, cfg.algo_id, cfg.env_id).width
        self.net = continuous.build_networks(
            self, n_actor_outputs=width, n_critics=cfg.n_critics, n_critic_actions=width
        )
        self.policy = continuous.noisy_policy(
            self, DeterministicPolicy, KEEPS[cfg.exploration_noise_type]
        )
        self.policy.noise_std = cfg.exploration_noise.values[-1]  # until a checkpoint sets it
        settings: dict[str, Any] = {"tau": cfg.tau, "record": cfg.has_short_sequences}
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor, **settings)
        self.critic = self.add_descent(
            "critic", self.critic_loss, self.net.critic, ema_every=cfg.policy_delay, **settings
        )
        self.target_actor = cast(Actor, self.actor.target)
        self.target_critic = cast(Critics, self.critic.target)
        self.program = self.add_program(self.step, turn=lambda: continuous.actor_turn(self))

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        targets = (self.target_actor, self.target_critic)
        return critic_loss(self.net, *targets, batch, c, self.burn_in)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        return actor_loss(self.net, batch, self.burn_in)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the target networks."""
        cfg, noise, smoothing = self.config, None, {}
        if cfg.target_noise is not None:
            noise = self.normal_noise(*batch.actions.shape)
            smoothing = {"noise_std": cfg.target_noise, "noise_clip": cfg.target_noise_clip}
        metrics, errors = continuous.learn_critics(self, batch, hp, noise, smoothing)
        if trains_actor:
            metrics |= continuous.learn_actor(self, batch, hp)
        return Learnt(metrics, errors)

    forward_all, next_values = continuous.taken_values, continuous.next_values
