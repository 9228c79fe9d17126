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

from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.nets.heads import critic_head
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
    return ActorCritics(
        learner.observation_space,
        network,
        head=critic_head(cfg.critic_head, **cfg.head_settings),
        critic_network=network._replace(hidden_dims=dims, norm=critic_norm or network.norm),
        share_encoder=cfg.share_encoder,
        normalize_obs=cfg.obs_normalization,
        clip_obs=cfg.clip_obs,
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


def target_entropy(learner: Any, hp: Hp, mask: Tensor | None) -> float | Tensor:
    """The entropy that a learnt temperature holds the policy at."""
    if "target_entropy" in hp:
        return hp["target_entropy"]
    if not learner.n_actions:
        each = getattr(learner.config, "target_entropy_by_std", None)
        return learner.width * (-1.0 if each is None else each)
    largest = math.log(learner.n_actions) if mask is None else mask.sum(1).log().mean()
    return hp["target_entropy_ratio"] * largest


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


def taken_values(net: ActorCritics, batch: ReplayBatch) -> Tensor:
    """The lowest critic's value of the actions in a batch [B], by a pass through all networks."""
    is_discrete = batch.actions.ndim == 1
    _, outputs = net(batch.obs, None if is_discrete else batch.actions)
    q = net.head.value(outputs).amin(0)
    return q.gather(1, batch.actions.unsqueeze(1)).squeeze(1) if is_discrete else q


def next_values(net: ActorCritics, batch: ReplayBatch) -> Tensor:
    """The lowest critic's value of the states that follow [B]: of the mean action, or over the
    probabilities of discrete ones; without entropy."""
    x = net.encoder(batch.next_obs)
    outputs = net.actor(x)
    if batch.actions.ndim == 1:
        chances = torch.softmax(mask_tensor(outputs, batch.next_mask), dim=1)
        return (chances * net.head.value(net.critic(x)).amin(0)).sum(1)
    best = torch.tanh(outputs[:, : batch.actions.shape[1]])
    return net.head.value(net.critic(x, best)).amin(0)


def deterministic_actor_loss(net: ActorCritics, obs: TensorObs) -> Tensor:
    """Minus the first critic's value of the actor's action."""
    x = net.encoder(obs)
    return -net.head.value(net.critic.first(x, torch.tanh(net.actor(x)))).mean()


# -- soft actor-critics with discrete actions: expectations over actions are exact ---------------


class ActorBatch(NamedTuple):
    """Input of the actor's loss."""

    obs: Any  # tree of tensors [B, ...]
    mask: Tensor | None = None  # legal actions [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal [B, A], for Box actions
    next_obs: Any = None  # to normalise by their statistics too (batch norm of block flash)


def legal_log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    return torch.log_softmax(mask_tensor(logits, mask), dim=1)


def soft_value(log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """Soft state value [B] from log-probabilities and Q-values [B, A]."""
    return (log_probs.exp() * (q - alpha * log_probs)).sum(1)


def of_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """The outputs [n, B], or [n, B, K], of critics [n, B, A] or [n, B, A, K] for actions [B]."""
    index = actions.view(1, -1, 1, *[1] * (outputs.ndim - 3))
    return outputs.gather(2, index.expand(len(outputs), -1, 1, *outputs.shape[3:])).squeeze(2)
