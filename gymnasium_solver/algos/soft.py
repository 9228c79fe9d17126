"""Shared parts of the soft actor-critics, SAC and CrossQ, for Box and discrete actions.

Critics learn the soft Bellman target, the actor maximises value plus entropy. The losses are pure
functions of networks and a batch of transitions (`ReplayBatch`, for the actor `ActorBatch`) or,
with memory, of sequences. With discrete actions, expectations over actions are exact. With batch
norm a loss also returns the statistics of its batch (nets/renorm.py), which are taken after the
step.

The temperature alpha weights entropy against reward. It is learnt (`ent_coef: auto`) so that the
policy's entropy stays at `target_entropy`, or it is a number or a schedule. What is learnt is its
logarithm; `alpha_loss` says along which loss.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.algos.continuous import (
    Bounds,
    Loss,
    both_critics,
    build_networks,
    fitted,
    learn_actor,
    learn_critics,
    numbered,
    seen_by_actor,
)
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.renorm import batch_statistics
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.spaces.actions import DiscreteActions, mask_tensor


def build_soft_networks(learner: Any, **more: Any) -> ActorCritics:
    """The networks of a soft actor-critic. Sets `n_actions` (0 for a Box), `width` (of an action,
    or the number of actions) and `reads_masks` of the learner."""
    cfg, actions = learner.config, learner.actions
    n_actions = actions.n if isinstance(actions, DiscreteActions) else 0
    if not n_actions:
        needs = "Box or Discrete actions"
        require_bounded_box(learner.action_space, cfg.algo_id, cfg.env_id, needs)
    learner.n_actions, learner.reads_masks = n_actions, bool(n_actions)
    learner.width = n_actions or actions.shape[0]
    return build_networks(
        learner,
        n_actor_outputs=n_actions or 2 * learner.width,
        n_critics=cfg.n_critics,
        n_critic_actions=0 if n_actions else learner.width,
        n_values=n_actions,
        alpha=cfg.first_alpha(is_discrete=bool(n_actions)),
        **more,
    )


def train_critics(
    learner: Any, batch: Any, hp: Hp, numbers: Mapping[str, Any] = {}
) -> tuple[dict[str, Any], Tensor]:
    """One gradient step of the critics: metrics, and errors for priorities."""
    numbers = {"alpha": alpha_now(learner, hp), **numbers}
    return learn_critics(learner, batch, hp, _noise(learner, batch), numbers)


def train_actor(
    learner: Any, batch: Any, hp: Hp, like: Descent, numbers: Mapping[str, Any] = {}, **more: Any
) -> dict[str, Any]:
    """One gradient step of the actor and, if it is learnt, of the temperature. `like`: the descent
    in whose form the latter is made."""
    alpha = alpha_now(learner, hp)
    numbers = {"alpha": alpha, **numbers}
    found = learn_actor(learner, batch, hp, _noise(learner, batch), numbers, **more)
    found |= {"opt/policy/alpha": alpha}
    if learner.alpha is not None:
        gap = found["opt/policy/entropy"] - target_entropy(learner, hp, batch)
        found["opt/loss/alpha"] = train_alpha(learner, gap, like, hp)
    return found


def _noise(learner: Any, batch: Any) -> Tensor | None:
    """Noise for sampling actions; discrete actions need none, and state-dependent exploration has
    its own."""
    if learner.n_actions or learner.net.actor.sde is not None:
        return None
    noise: Tensor = learner.normal_noise(*batch.reward.shape, learner.width)
    return noise


# -- the temperature -----------------------------------------------------------------------------


def add_alpha(learner: Any, **settings: Any) -> Descent | None:
    """The descent of a learnt temperature: neither clipped nor decayed, within its bounds."""
    cfg, temperature = learner.config, learner.net.temperature
    if temperature is None:
        return None
    bounds = (cfg.log_alpha_min, cfg.log_alpha_max)
    free = {"max_grad_norm": None, "weight_decay": 0.0, "agc": None, "bounds": bounds}
    descent: Descent = learner.add_descent("alpha", None, temperature, **free | settings)
    return descent


def alpha_now(learner: Any, hp: Hp) -> float | Tensor:
    """The temperature: learnt, or its scheduled value."""
    temperature = learner.net.temperature
    alpha: float | Tensor = hp["ent_coef"] if temperature is None else temperature.alpha
    return alpha


def train_alpha(learner: Any, gap: Tensor, like: Descent, hp: Hp) -> Tensor:
    """One gradient step on `alpha_loss` times (entropy - target); too little entropy raises alpha.
    `gap`: the bracket, which may be overwritten."""
    temperature = learner.net.temperature
    if learner.config.alpha_loss == "alpha":
        gap = temperature.alpha * gap  # the loss, and its derivative by log alpha
        loss: Tensor = gap.clone()
    else:
        loss = temperature.log_alpha.detach().squeeze(0) * gap
    learner.alpha.along(gap.reshape(1), hp.get("alpha_lr", hp["policy_lr"]), like)
    return loss


def target_entropy(learner: Any, hp: Hp, batch: Any) -> float | Tensor:
    """The entropy that a learnt temperature holds the policy at, in the states of a batch."""
    if "target_entropy" in hp:
        return hp["target_entropy"]
    if not learner.n_actions:
        each = getattr(learner.config, "target_entropy_by_std", None)
        return learner.width * (-1.0 if each is None else each)
    largest = math.log(learner.n_actions) if batch.mask is None else _largest_entropy(batch)
    return hp["target_entropy_ratio"] * largest


def _largest_entropy(batch: Any) -> Tensor:
    """Mean over states, that of a policy which takes all legal actions alike."""
    if not isinstance(batch, SequenceBatch):
        entropy: Tensor = batch.mask.sum(1).log().mean()
        return entropy
    logs = batch.mask[:, :-1].sum(2).clamp(min=1).log() * batch.valid
    return logs.sum() / batch.valid.sum().clamp(min=1.0)


def _bounds(c: Mapping[str, Tensor]) -> Bounds:
    """Of batch renormalisation, where a loss is given them."""
    return (c["r_max"], c["d_max"]) if "r_max" in c else None


# -- losses for Box actions ----------------------------------------------------------------------


def critic_loss(
    net: ActorCritics, target: Critics | None, given: Any, c: Mapping[str, Tensor], burn_in: int = 0
) -> Loss:
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    with torch.no_grad():
        next_actions, log_prob = net.actor.sampled(rows.later(net.actor), batch.noise)
    outputs, following, moments = both_critics(
        net, target, rows, batch.actions, next_actions, _bounds(c)
    )
    with torch.no_grad():
        lowest, entropy = net.head.lowest(following), -(c["alpha"] * log_prob)
        wanted = net.head.target(lowest, batch.reward, batch.discount, entropy)
    return fitted(net, rows, outputs, wanted, moments)


def actor_loss(net: ActorCritics, given: Any, c: Mapping[str, Tensor], burn_in: int = 0) -> Loss:
    rows = rows_of(net, given, burn_in)
    y, next_y = seen_by_actor(net, rows)
    with batch_statistics(net.actor, _bounds(c)) as moments:
        actions, log_prob = net.actor.sampled(y, rows.batch.noise, next_y)
    q = net.head.value(net.critic.values(rows.now(net.critic), actions)).amin(0)
    loss, entropy = rows.mean(c["alpha"] * log_prob - q), -rows.mean(log_prob.detach())
    return loss, {"opt/loss/policy": loss, "opt/policy/entropy": entropy, **numbered(moments)}


# -- losses for discrete actions -----------------------------------------------------------------


def discrete_critic_loss(
    net: ActorCritics, target: Critics | None, given: Any, c: Mapping[str, Tensor], burn_in: int = 0
) -> Loss:
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    outputs, following, moments = both_critics(net, target, rows, None, None, _bounds(c))
    with torch.no_grad():
        logits = net.actor.layers(rows.later(net.actor))
        lowest = net.head.value(following).amin(0)  # [B, A]
        next_value = soft_value(legal_log_probs(logits, batch.next_mask), lowest, c["alpha"])
        wanted = net.head.known(batch.reward + batch.discount * next_value)
    index = batch.actions.view(1, -1, 1, *[1] * (outputs.ndim - 3))  # of [n, B, A] or [n, B, A, K]
    chosen = outputs.gather(2, index.expand(len(outputs), -1, 1, *outputs.shape[3:])).squeeze(2)
    return fitted(net, rows, chosen, wanted, moments)


def discrete_actor_loss(
    net: ActorCritics, given: Any, c: Mapping[str, Tensor], burn_in: int = 0,
    steady_actor: Actor | None = None,
) -> Loss:  # fmt: skip
    """`steady_actor`: one whose entropy this one stays near, by `penalty_coef`."""
    rows = rows_of(net, given, burn_in)
    y, mask = rows.now(net.actor), rows.batch.mask
    with batch_statistics(net.actor, _bounds(c)) as moments:
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
    found = {"opt/loss/policy": loss, "opt/policy/entropy": rows.mean(entropy.detach())}
    return loss, {**found, **numbered(moments)}


def legal_log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    return torch.log_softmax(mask_tensor(logits, mask), dim=1)


def soft_value(log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """Soft state value [B] from log-probabilities and Q-values [B, A]."""
    return (log_probs.exp() * (q - alpha * log_probs)).sum(1)
