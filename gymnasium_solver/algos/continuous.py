"""Shared parts of the algorithms with an actor and critics of their own: SAC, CrossQ, TD3, DDPG.

    net = build_networks(learner, n_actor_outputs=..., n_critics=2, n_critic_actions=...)
    policy = noisy_policy(learner, SoftPolicy, keeps)
    metrics, errors = learn_critics(learner, batch, hp, noise, numbers)
    found = learn_actor(learner, batch, hp, noise, numbers)

What soft actor-critics share is in soft.py, what deterministic ones do in deterministic.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import Rows, rows_of
from gymnasium_solver.algos.replay_learner import ReplayLearner, SequenceLengths
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.program import Hp
from gymnasium_solver.nets.actor_critics import ActorCritics, Critics, with_actions
from gymnasium_solver.nets.heads import critic_head
from gymnasium_solver.nets.renorm import MOMENTUM, batch_statistics, take_moments
from gymnasium_solver.spaces.actions import mask_tensor

Loss = tuple[Tensor, dict[str, Tensor]]  # a loss and its named outputs, as a descent takes them


def build_networks(
    learner: ReplayLearner, norm: Any = None, critic_norm: Any = None, **shape: Any
) -> ActorCritics:
    """The networks of the config, with outputs and inputs of this shape. `norm`: of all networks by
    the algorithm; `critic_norm`: of the critics."""
    cfg: Any = learner.config
    own = norm or critic_norm
    if own is not None and cfg.norm is not None:
        raise ConfigError(f"norm: {cfg.algo_id} has {own} norm here; remove norm: {cfg.norm}")
    network = learner.network._replace(norm=norm or cfg.norm)
    dims = network.hidden_dims if cfg.critic_hidden_dims is None else cfg.critic_hidden_dims
    if network.recurrence is not None:
        learner.sequences = SequenceLengths(cfg.burn_in, cfg.sequence_length)
    return ActorCritics(
        learner.observation_space,
        network,
        head=critic_head(cfg.critic_head, **cfg.head_settings),
        critic_network=network._replace(hidden_dims=dims, norm=critic_norm or network.norm),
        share_encoder=cfg.share_encoder,
        generator=learner.generator,
        **shape,
    ).to(learner.device)


def noisy_policy(learner: ReplayLearner, kind: type, keeps: float, **more: Any) -> Any:
    """A policy with exploration noise, of which each step keeps a share."""
    policy = learner.make_policy(kind, learner.net, keeps, **more)
    learner.forwards["act"] = policy.explorer
    return policy


def actor_turn(learner: ReplayLearner) -> bool:
    """Whether the next step trains the actor too: every `policy_delay` steps of the critics."""
    cfg: Any = learner.config
    return (learner.descents["critic"].optimizer.n_steps + 1) % cfg.policy_delay == 0


# -- for statistics: methods of a learner --------------------------------------------------------


def taken_values(learner: Any, batch: Any) -> Tensor | None:
    """The lowest critic's value of the actions in a batch [B], by a pass through all networks; of
    sequences there are none."""
    net = learner.net
    if isinstance(batch, SequenceBatch):
        rows = rows_of(net, batch, learner.burn_in)
        actions = None if batch.actions.ndim == 2 else rows.batch.actions
        net.actor.layers(rows.now(net.actor))
        net.critic.values(rows.now(net.critic), actions)
        return None
    is_discrete = batch.actions.ndim == 1
    _, outputs = net(batch.obs, None if is_discrete else batch.actions)
    q: Tensor = net.head.value(outputs).amin(0)
    return q.gather(1, batch.actions.unsqueeze(1)).squeeze(1) if is_discrete else q


def next_values(learner: Any, batch: ReplayBatch) -> Tensor:
    """The lowest critic's value of the states that follow [B]: of the mean action, or over the
    probabilities of discrete ones; without entropy."""
    net: ActorCritics = learner.net
    x = net.encoder(batch.next_obs)
    outputs = net.actor_outputs(batch.next_obs)
    if batch.actions.ndim == 1:
        chances = torch.softmax(mask_tensor(outputs, batch.next_mask), dim=1)
        return (chances * net.head.value(net.critic(x)).amin(0)).sum(1)
    best = torch.tanh(outputs[:, : batch.actions.shape[1]])
    return net.head.value(net.critic(x, best)).amin(0)


# -- a step --------------------------------------------------------------------------------------


class ActorBatch(NamedTuple):
    """Input of the actor's loss, if it is not a batch of sequences."""

    obs: Any  # tree of tensors [B, ...]
    mask: Tensor | None = None  # legal actions [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal [B, A], for Box actions
    next_obs: Any = None  # to normalise by their statistics too (batch norm of block flash)


def learn_critics(
    learner: Any, batch: Any, hp: Hp, noise: Tensor | None, numbers: Mapping[str, Any]
) -> tuple[dict[str, Any], Tensor]:
    """One gradient step of the critics: metrics, and errors for priorities."""
    given = batch._replace(noise=noise)
    if not isinstance(batch, SequenceBatch):
        given = given._replace(mask=None)  # the legal actions of s are not read
    steps = learner.critic(given, numbers, hp.get("critic_lr", hp["policy_lr"]))
    take_moments(learner.net.critic.mlps, _moments_in(steps.by_sample))
    return steps.last(), steps.by_sample["errors"]


def learn_actor(
    learner: Any, batch: Any, hp: Hp, noise: Tensor | None = None,
    numbers: Mapping[str, Any] = {}, momentum: float = MOMENTUM,
) -> dict[str, Any]:  # fmt: skip
    """One gradient step of the actor. `momentum`: of its batch norms."""
    if isinstance(batch, SequenceBatch):
        given: Any = batch._replace(noise=noise)
    else:
        has_next = learner.config.block == "flash"
        given = ActorBatch(batch.obs, batch.mask, noise, batch.next_obs if has_next else None)
    steps = learner.actor(given, numbers, hp["policy_lr"])
    take_moments(learner.net.actor.layers, _moments_in(steps.by_sample), momentum)
    found: dict[str, Any] = steps.last()
    return found


def numbered(moments: list[Tensor]) -> dict[str, Tensor]:
    """Statistics of batch norms (nets/renorm.py) as outputs of a loss."""
    return {f"moment {i}": moment for i, moment in enumerate(moments)}


def _moments_in(outputs: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for name, value in outputs.items() if name.startswith("moment")]


# -- losses --------------------------------------------------------------------------------------


Bounds = tuple[Tensor, Tensor] | None  # of r and d in batch renormalisation; None: plain batch norm


def both_critics(
    net: ActorCritics, target: Critics | None, rows: Rows, actions: Tensor | None,
    next_actions: Tensor | None, bounds: Bounds = None,
) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """Outputs of the critics for (s, a), of the target critics for (s', a'), and the statistics of
    batch norms. Batch norm gets both in one pass: apart, a critic would compare values that are
    normalised differently. Target critics use the statistics of the batch as well. Without them
    (`target`: None) the second half of the critics' own pass is the target."""
    if target is not None and not net.has_batch_norm:
        with torch.no_grad():
            following = target.values(rows.later(target), next_actions)
        return net.critic.values(rows.now(net.critic), actions), following, []

    def joint(critics: Critics) -> tuple[Tensor, Tensor, list[Tensor]]:
        inputs = torch.cat([
            with_actions(rows.now(critics), actions),
            with_actions(rows.later(critics), next_actions),
        ])  # fmt: skip
        with batch_statistics(critics, bounds) as moments:
            both = critics.shaped(critics.mlps(inputs))
        return *both.unflatten(1, (2, -1)).unbind(1), moments  # [n, B, ...]

    if target is None:
        outputs, following, moments = joint(net.critic)
        return outputs, following.detach(), moments
    with torch.no_grad():
        following = joint(target)[1]
    outputs, _, moments = joint(net.critic)
    return outputs, following, moments


def fitted(
    net: ActorCritics, rows: Rows, outputs: Tensor, wanted: Tensor, moments: list[Tensor]
) -> Loss:
    """The critics' loss for these targets."""
    loss, q, errors = net.head.critics_loss(outputs, wanted, rows.batch.weight)
    found = {"opt/loss/critic": loss, "opt/q/mean": q, "errors": rows.priorities(errors)}
    return loss, {**found, **numbered(moments)}


def seen_by_actor(net: ActorCritics, rows: Rows) -> tuple[Tensor, Tensor | None]:
    """What the actor's layers take at s and, if they are given for its loss, at s'."""
    has_next = isinstance(rows.batch, ActorBatch) and rows.batch.next_obs is not None
    return rows.now(net.actor), rows.later(net.actor) if has_next else None
