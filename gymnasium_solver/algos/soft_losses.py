"""The losses of SAC, for Box and discrete actions: pure functions of networks and a batch of
transitions (`ReplayBatch`, for the actor `ActorBatch`) or, with memory, of sequences.

Critics learn the soft Bellman target, the actor maximises value plus entropy. With batch norm a
loss also returns the statistics of its batch (nets/renorm.py), which are taken after the step.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.algos.continuous import (
    CriticTerms,
    both_critics,
    legal_log_probs,
    of_actions,
    seen_by_actor,
    soft_value,
)
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import batch_statistics


class ActorTerms(NamedTuple):
    loss: Tensor
    entropy: Tensor  # an estimate of it
    moments: list[Tensor]


# -- Box actions ----------------------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: Critics, given: Any, alpha: Tensor, burn_in: int = 0
) -> CriticTerms:
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    with torch.no_grad():
        next_actions, next_log_prob = net.actor.sampled(rows.later(net.actor), batch.noise)
    outputs, following, moments = both_critics(net, target, rows, batch.actions, next_actions)
    with torch.no_grad():
        entropy = -(alpha * next_log_prob)
        lowest = net.head.lowest(following)
        wanted = net.head.target(lowest, batch.reward, batch.discount, entropy)
    loss, q, errors = net.head.critics_loss(outputs, wanted, batch.weight)
    return CriticTerms(loss, q, rows.priorities(errors), moments)


def actor_loss(net: ActorCritics, given: Any, alpha: Tensor, burn_in: int = 0) -> ActorTerms:
    rows = rows_of(net, given, burn_in)
    y, beside = seen_by_actor(net, rows)
    with batch_statistics(net.actor) as moments:
        actions, log_prob = net.actor.sampled(y, rows.batch.noise, beside)
    q = net.head.value(net.critic.values(rows.now(net.critic), actions)).amin(0)
    return ActorTerms(rows.mean(alpha * log_prob - q), -rows.mean(log_prob.detach()), moments)


# -- discrete actions -----------------------------------------------------------------------------


def discrete_critic_loss(
    net: ActorCritics, target: Critics, given: Any, alpha: Tensor, burn_in: int = 0
) -> CriticTerms:
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    outputs, following, moments = both_critics(net, target, rows, None, None)
    with torch.no_grad():
        logits = net.actor.layers(rows.later(net.actor))
        lowest = net.head.value(following).amin(0)  # [B, A]
        next_value = soft_value(legal_log_probs(logits, batch.next_mask), lowest, alpha)
        wanted = net.head.known(batch.reward + batch.discount * next_value)
    chosen = of_actions(outputs, batch.actions)  # of [n, B, A] or [n, B, A, K]
    loss, q, errors = net.head.critics_loss(chosen, wanted, batch.weight)
    return CriticTerms(loss, q, rows.priorities(errors), moments)


def discrete_actor_loss(
    net: ActorCritics,
    steady_actor: Actor | None,
    given: Any,
    c: Mapping[str, Tensor],
    burn_in: int = 0,
) -> ActorTerms:
    rows = rows_of(net, given, burn_in)
    y, mask = rows.now(net.actor), rows.batch.mask
    with batch_statistics(net.actor) as moments:
        log_probs = legal_log_probs(net.actor.layers(y), mask)
    with torch.no_grad():
        q = net.head.value(net.critic.values(rows.now(net.critic), None)).amin(0)
    loss = -rows.mean(soft_value(log_probs, q, c["alpha"]))
    entropy = -(log_probs.exp() * log_probs).sum(1)
    if steady_actor is not None:
        with torch.no_grad():
            steady = legal_log_probs(steady_actor.layers(rows.now(steady_actor)), mask)
            wanted = -(steady.exp() * steady).sum(1)
        loss = loss + c["penalty_coef"] * 0.5 * rows.mean((entropy - wanted).square())
    return ActorTerms(loss, rows.mean(entropy.detach()), moments)
