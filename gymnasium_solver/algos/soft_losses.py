"""The losses of SAC, for Box and discrete actions: pure functions of networks and a batch.

Critics learn the soft Bellman target, the actor maximises value plus entropy. With batch norm a
loss also returns the statistics of its batch (nets/renorm.py), which are taken after the step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gymnasium_solver.algos.continuous import ActorBatch, legal_log_probs, of_actions, soft_value
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.nets.actor_critics import ActorCritics, Critics
from gymnasium_solver.nets.encoder import Encoded
from gymnasium_solver.nets.renorm import batch_statistics


class CriticTerms(NamedTuple):
    loss: Tensor
    q: Tensor  # mean
    errors: Tensor  # absolute TD errors [B]
    moments: list[Tensor]  # of batch norms


class ActorTerms(NamedTuple):
    loss: Tensor
    entropy: Tensor  # an estimate of it
    moments: list[Tensor]


def both_critics(
    net: ActorCritics,
    target: Critics,
    x: Encoded,
    actions: Tensor | None,
    next_x: Encoded,
    next_actions: Tensor | None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs of the critics for (s, a), of the target critics for (s', a'), and the statistics of
    batch norms. Batch norm gets both in one pass: apart, a critic would compare values that are
    normalised differently. Target critics use the statistics of the batch as well."""
    if not net.has_batch_norm:
        with torch.no_grad():
            following = target(next_x, next_actions)
        return net.critic(x, actions), following, []

    def joint(critics: Critics) -> tuple[Tensor, Tensor]:
        inputs = [critics.inputs(x, actions), critics.inputs(next_x, next_actions)]
        both = critics.shaped(critics.mlps(torch.cat(inputs)))
        now, later = both.tensor_split(2, dim=1)
        return now, later

    with torch.no_grad(), batch_statistics(target):
        _, following = joint(target)
    with batch_statistics(net.critic) as moments:
        outputs, _ = joint(net.critic)
    return outputs, following, moments


# -- Box actions ----------------------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> CriticTerms:
    next_x = net.encoder(batch.next_obs)
    with torch.no_grad():
        next_actions, next_log_prob = net.actor.sampled(next_x, batch.noise)
    x = net.encoder(batch.obs)
    outputs, following, moments = both_critics(net, target, x, batch.actions, next_x, next_actions)
    with torch.no_grad():
        entropy = -(alpha * next_log_prob)
        lowest = net.head.lowest(following)
        wanted = net.head.target(lowest, batch.reward, batch.discount, entropy)
    return CriticTerms(*net.head.critics_loss(outputs, wanted, batch.weight), moments)


def actor_loss(net: ActorCritics, batch: ActorBatch, alpha: Tensor) -> ActorTerms:
    x = net.encoder(batch.obs)
    next_x = None if batch.next_obs is None else net.encoder(batch.next_obs)
    with batch_statistics(net.actor) as moments:
        actions, log_prob = net.actor.sampled(x, batch.noise, beside=next_x)
    q = net.head.value(net.critic(x, actions)).amin(0)
    return ActorTerms((alpha * log_prob - q).mean(), -log_prob.detach().mean(), moments)


# -- discrete actions -----------------------------------------------------------------------------


def discrete_critic_loss(
    net: ActorCritics, target: Critics, batch: ReplayBatch, alpha: Tensor
) -> CriticTerms:
    x, next_x = net.encoder(batch.obs), net.encoder(batch.next_obs)
    outputs, following, moments = both_critics(net, target, x, None, next_x, None)
    with torch.no_grad():
        log_probs = legal_log_probs(net.actor(next_x), batch.next_mask)
        lowest = net.head.value(following).amin(0)  # [B, A]
        next_value = soft_value(log_probs, lowest, alpha)
        wanted = net.head.known(batch.reward + batch.discount * next_value)
    chosen = of_actions(outputs, batch.actions)  # of [n, B, A] or [n, B, A, K]
    return CriticTerms(*net.head.critics_loss(chosen, wanted, batch.weight), moments)


def discrete_actor_loss(
    net: ActorCritics, steady_actor: nn.Module | None, batch: ActorBatch, c: Mapping[str, Tensor]
) -> ActorTerms:
    x, mask = net.encoder(batch.obs), batch.mask
    with batch_statistics(net.actor) as moments:
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
    return ActorTerms(loss, entropy.detach().mean(), moments)
