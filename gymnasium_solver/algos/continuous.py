"""Shared parts of the algorithms with an actor and critics of their own: SAC, CrossQ, TD3, DDPG.

    net = build_networks(learner, n_actor_outputs=..., n_critics=2, n_critic_actions=...)
    policy = soft_policy(learner)                # SAC, CrossQ; deterministic_policy: TD3, DDPG

The temperature alpha of a soft actor-critic weights entropy against reward. It is learnt
(`ent_coef: auto`) so that the policy's entropy stays at `target_entropy`, or it is a number or a
schedule. Its gradient is taken with respect to log alpha, as in most implementations; the paper
uses alpha, which only changes the step size.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import Rows, rows_of
from gymnasium_solver.algos.replay_learner import ReplayLearner, SequenceLengths
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics, with_actions
from gymnasium_solver.nets.heads import critic_head
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.nets.renorm import batch_statistics, take_moments
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.spaces.actions import DiscreteActions, mask_tensor

# Correlation of the noise between two steps; for Ornstein-Uhlenbeck as in Lillicrap et al. 2016.
KEEPS = {"gaussian": 0.0, "ou": 0.85}
CRITIC_METRICS = {"loss": "opt/loss/critic", "q": "opt/q/mean", "norm": "opt/grads/norm/critic"}
ACTOR_METRICS = {
    "loss": "opt/loss/policy", "norm": "opt/grads/norm/policy", "entropy": "opt/policy/entropy"
}  # fmt: skip


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
    recurrence = None
    if getattr(cfg, "recurrent", None) is not None:
        recurrence = Recurrence(cfg.recurrent, cfg.recurrent_dim)
        learner.sequences = SequenceLengths(cfg.burn_in, cfg.sequence_length)
    return ActorCritics(
        learner.observation_space,
        network,
        head=critic_head(cfg.critic_head, **cfg.head_settings),
        critic_network=network._replace(hidden_dims=dims, norm=critic_norm or network.norm),
        share_encoder=cfg.share_encoder,
        normalize_obs=cfg.obs_normalization,
        clip_obs=cfg.clip_obs,
        recurrence=recurrence,
        generator=learner.generator,
        **shape,
    ).to(learner.device)


def build_soft_networks(learner: Any, **more: Any) -> ActorCritics:
    """The networks of a soft actor-critic, for Box or Discrete actions. Sets `n_actions` (0 for a
    Box), `width` (of an action, or the number of actions) and `reads_masks` of the learner."""
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


def soft_policy(learner: ReplayLearner, sde_sample_freq: int = -1) -> SoftPolicy:
    """The policy of a soft actor-critic."""
    cfg: Any = learner.config
    policy = SoftPolicy(
        learner.net,
        learner.observation_space,
        learner.actions,
        learner.act_rng,
        cfg.noise_correlation,
        noise_repeat=getattr(cfg, "noise_repeat", 1),
        record=learner.execution.records_acting,
        compile=learner.execution.compiles,
        sde_sample_freq=sde_sample_freq,
    )
    learner.forwards["act"] = policy.explorer
    return policy


def deterministic_policy(learner: ReplayLearner) -> DeterministicPolicy:
    """The policy of TD3 and DDPG, with exploration noise."""
    cfg: Any = learner.config
    policy = DeterministicPolicy(
        learner.net,
        learner.observation_space,
        learner.actions,
        learner.act_rng,
        KEEPS[cfg.exploration_noise_type],
        record=learner.execution.records_acting,
        compile=learner.execution.compiles,
    )
    learner.forwards["act"] = policy.explorer
    policy.noise_std = cfg.exploration_noise.values[-1]  # until a checkpoint sets it
    return policy


def add_alpha(learner: ReplayLearner, **settings: Any) -> Descent | None:
    """The descent of a learnt temperature: neither clipped nor decayed, within its bounds."""
    cfg: Any = learner.config
    if learner.net.temperature is None:
        return None
    bounds = (cfg.log_alpha_min, cfg.log_alpha_max)
    free = {"max_grad_norm": None, "weight_decay": 0.0, "agc": None, "bounds": bounds}
    return learner.add_descent("alpha", None, learner.net.temperature, **free | settings)


def alpha_of(learner: ReplayLearner, hp: Hp) -> float | Tensor:
    """The temperature: learnt, or its scheduled value."""
    temperature = learner.net.temperature
    alpha: float | Tensor = hp["ent_coef"] if temperature is None else temperature.alpha
    return alpha


def learn_alpha(
    learner: ReplayLearner, descent: Descent, like: Descent, gap: Tensor, hp: Hp
) -> dict[str, Tensor]:
    """One gradient step on log alpha * (entropy - target); too little entropy raises alpha. `gap`:
    the bracket, which may be overwritten. `like`: the descent in whose form the step is made."""
    loss = learner.net.temperature.log_alpha.detach().squeeze(0) * gap
    descent.along(gap.reshape(1), hp.get("alpha_lr", hp["policy_lr"]), like)
    return {"opt/loss/alpha": loss}


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


def actor_turn(learner: ReplayLearner) -> bool:
    """Whether the next step trains the actor too: every `policy_delay` steps of the critics."""
    cfg: Any = learner.config
    return (learner.descents["critic"].optimizer.n_steps + 1) % cfg.policy_delay == 0


def numbered(moments: list[Tensor]) -> dict[str, Tensor]:
    """Statistics of batch norms (nets/renorm.py) as outputs of a loss."""
    return {f"moment {i}": moment for i, moment in enumerate(moments)}


def moments_in(outputs: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for name, value in outputs.items() if name.startswith("moment")]


def renamed(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in found.items()}


def taken_values(net: ActorCritics, batch: Any, burn_in: int = 0) -> Tensor | None:
    """The lowest critic's value of the actions in a batch [B], by a pass through all networks; of
    sequences there are none."""
    if isinstance(batch, SequenceBatch):
        rows = rows_of(net, batch, burn_in)
        actions = None if batch.actions.ndim == 2 else rows.batch.actions
        net.actor.layers(rows.now(net.actor))
        net.critic.values(rows.now(net.critic), actions)
        return None
    is_discrete = batch.actions.ndim == 1
    _, outputs = net(batch.obs, None if is_discrete else batch.actions)
    q = net.head.value(outputs).amin(0)
    return q.gather(1, batch.actions.unsqueeze(1)).squeeze(1) if is_discrete else q


def next_values(net: ActorCritics, batch: ReplayBatch) -> Tensor:
    """The lowest critic's value of the states that follow [B]: of the mean action, or over the
    probabilities of discrete ones; without entropy."""
    x = net.encoder(batch.next_obs)
    outputs = net.actor_outputs(batch.next_obs)
    if batch.actions.ndim == 1:
        chances = torch.softmax(mask_tensor(outputs, batch.next_mask), dim=1)
        return (chances * net.head.value(net.critic(x)).amin(0)).sum(1)
    best = torch.tanh(outputs[:, : batch.actions.shape[1]])
    return net.head.value(net.critic(x, best)).amin(0)


class CriticTerms(NamedTuple):
    loss: Tensor
    q: Tensor  # mean
    errors: Tensor  # absolute TD errors [B]
    moments: list[Tensor]  # of batch norms


def both_critics(
    net: ActorCritics,
    target: Critics,
    rows: Rows,
    actions: Tensor | None,
    next_actions: Tensor | None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs of the critics for (s, a), of the target critics for (s', a'), and the statistics of
    batch norms. Batch norm gets both in one pass: apart, a critic would compare values that are
    normalised differently. Target critics use the statistics of the batch as well."""
    if not net.has_batch_norm:
        with torch.no_grad():
            following = target.values(rows.later(target), next_actions)
        return net.critic.values(rows.now(net.critic), actions), following, []

    def joint(critics: Critics) -> tuple[Tensor, Tensor]:
        inputs = [
            with_actions(rows.now(critics), actions),
            with_actions(rows.later(critics), next_actions),
        ]
        both = critics.shaped(critics.mlps(torch.cat(inputs)))
        now, later = both.tensor_split(2, dim=1)
        return now, later

    with torch.no_grad(), batch_statistics(target):
        _, following = joint(target)
    with batch_statistics(net.critic) as moments:
        outputs, _ = joint(net.critic)
    return outputs, following, moments


# -- deterministic actors: TD3, DDPG -------------------------------------------------------------


def deterministic_critic_loss(
    net: ActorCritics,
    target_actor: Actor,
    target_critic: Critics,
    given: Any,
    burn_in: int = 0,
    noise_std: Tensor | None = None,
    noise_clip: Tensor | None = None,
) -> CriticTerms:
    """Towards the target critics' value of the target actor's action, with clipped noise on it if
    `noise_std` is given."""
    rows = rows_of(net, given, burn_in)
    batch = rows.batch
    with torch.no_grad(), batch_statistics(target_actor):
        next_actions = torch.tanh(target_actor.layers(rows.later(target_actor)))
        if noise_std is not None:
            assert batch.noise is not None
            assert noise_clip is not None
            noise = (batch.noise * noise_std).clamp(-noise_clip, noise_clip)
            next_actions = (next_actions + noise).clamp(-1.0, 1.0)
    outputs, following, moments = both_critics(
        net, target_critic, rows, batch.actions, next_actions
    )
    with torch.no_grad():
        wanted = net.head.target(net.head.lowest(following), batch.reward, batch.discount)
    loss, q, errors = net.head.critics_loss(outputs, wanted, batch.weight)
    return CriticTerms(loss, q, rows.priorities(errors), moments)


def seen_by_actor(net: ActorCritics, rows: Rows) -> tuple[Tensor, Tensor | None]:
    """What the actor's layers take at s and, if they are given for its loss, at s'."""
    has_next = isinstance(rows.batch, ActorBatch) and rows.batch.next_obs is not None
    return rows.now(net.actor), rows.later(net.actor) if has_next else None


def deterministic_actor_loss(
    net: ActorCritics, given: Any, burn_in: int = 0
) -> tuple[Tensor, list[Tensor]]:
    """Minus the first critic's value of the actor's action, and the statistics of batch norms."""
    rows = rows_of(net, given, burn_in)
    with batch_statistics(net.actor) as moments:
        actions = torch.tanh(net.actor.outputs(*seen_by_actor(net, rows)))
    q = net.head.value(net.critic.first(rows.now(net.critic), actions))
    return -rows.mean(q), moments


def learn_deterministically(
    learner: Any, batch: Any, hp: Hp, noise: Tensor | None, numbers: Mapping[str, Any],
    trains_actor: bool,
) -> Learnt:  # fmt: skip
    """One gradient step of the critics and, in its turn, of the actor."""
    steps = learner.critic(for_critics(batch, noise), numbers, hp.get("critic_lr", hp["policy_lr"]))
    take_moments(learner.net.critic, moments_in(steps.by_sample))
    metrics = renamed(steps.last(), CRITIC_METRICS)
    if trains_actor:
        given = for_actor(batch, None, has_next=learner.config.block == "flash")
        actor = learner.actor(given, {}, hp["policy_lr"])
        take_moments(learner.net.actor, moments_in(actor.by_sample))
        metrics |= renamed(actor.last(), ACTOR_METRICS)
    return Learnt(metrics, steps.by_sample["errors"])


# -- soft actor-critics with discrete actions: expectations over actions are exact ---------------


class ActorBatch(NamedTuple):
    """Input of the actor's loss, if it is not a batch of sequences."""

    obs: Any  # tree of tensors [B, ...]
    mask: Tensor | None = None  # legal actions [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal [B, A], for Box actions
    next_obs: Any = None  # to normalise by their statistics too (batch norm of block flash)


def for_critics(batch: Any, noise: Tensor | None) -> Any:
    """The input of the critics' loss. It does not read the legal actions of s."""
    if isinstance(batch, SequenceBatch):
        return batch._replace(noise=noise)
    return batch._replace(noise=noise, mask=None)


def for_actor(batch: Any, noise: Tensor | None, has_next: bool = False) -> Any:
    """The input of the actor's loss. `has_next`: with the observations that follow."""
    if isinstance(batch, SequenceBatch):
        return batch._replace(noise=noise)
    return ActorBatch(batch.obs, batch.mask, noise, batch.next_obs if has_next else None)


def legal_log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    return torch.log_softmax(mask_tensor(logits, mask), dim=1)


def soft_value(log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """Soft state value [B] from log-probabilities and Q-values [B, A]."""
    return (log_probs.exp() * (q - alpha * log_probs)).sum(1)


def of_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """The outputs [n, B], or [n, B, K], of critics [n, B, A] or [n, B, A, K] for actions [B]."""
    index = actions.view(1, -1, 1, *[1] * (outputs.ndim - 3))
    return outputs.gather(2, index.expand(len(outputs), -1, 1, *outputs.shape[3:])).squeeze(2)
