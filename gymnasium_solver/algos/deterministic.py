"""Shared parts of the deterministic actor-critics, TD3 and DDPG: how they are built, and losses."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from gymnasium_solver.algos import continuous
from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.algos.continuous import Loss
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import batch_statistics
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box

# Correlation of the noise between two steps; for Ornstein-Uhlenbeck as in Lillicrap et al. 2016.
KEEPS = {"gaussian": 0.0, "ou": 0.85}


def build(learner: Any) -> None:
    """Networks, policy, descents and targets. They are attributes of the learner."""
    cfg = learner.config
    width = require_bounded_box(learner.action_space, cfg.algo_id, cfg.env_id).width
    learner.net = continuous.build_networks(
        learner, n_actor_outputs=width, n_critics=cfg.n_critics, n_critic_actions=width
    )
    learner.policy = continuous.noisy_policy(
        learner, DeterministicPolicy, KEEPS[cfg.exploration_noise_type]
    )
    learner.policy.noise_std = cfg.exploration_noise.values[-1]  # until a checkpoint sets it
    settings: dict[str, Any] = {"tau": cfg.tau, "record": cfg.has_short_sequences}
    learner.actor = learner.add_descent("policy", learner.actor_loss, learner.net.actor, **settings)
    learner.critic = learner.add_descent(
        "critic", learner.critic_loss, learner.net.critic, ema_every=cfg.policy_delay, **settings
    )
    learner.target_actor = cast(Actor, learner.actor.target)
    learner.target_critic = cast(Critics, learner.critic.target)


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
    y, next_y = continuous.seen_by_actor(net, rows)
    with batch_statistics(net.actor) as moments:
        actions = torch.tanh(net.actor.outputs(y, next_y))
    loss = -rows.mean(net.head.value(net.critic.first(rows.now(net.critic), actions)))
    return loss, {"opt/loss/policy": loss, **continuous.numbered(moments)}
