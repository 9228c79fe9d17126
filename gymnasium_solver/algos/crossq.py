"""CrossQ: SAC without target networks, using batch renormalisation (Bhatt et al. 2024).

The critics process (s, a) and (s', a') in one forward pass, so both are normalised by the
statistics of the same mixture. This makes targets from the online critics stable, and learning fast
with a low update-to-data ratio. Batch renormalisation precedes every linear layer of the critics
and the actor. Adam uses beta1 0.5, the actor is updated every third step, and the critics are wide.
Next actions, the critics in the actor's loss, and acting use running statistics. Differences from
the authors' code: truncated episodes bootstrap from their true final observation; log standard
deviations are clamped to [-20, 2]; layers use torch's default initialisation.

Discrete actions: the critics take the observation and give a value for each action, and
expectations over actions are exact, as in discrete SAC (Christodoulou 2019).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.crossq import CrossQConfig
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    ActorBatch,
    actor_turn,
    add_alpha,
    alpha_of,
    build_soft_networks,
    learn_alpha,
    legal_log_probs,
    moments_in,
    next_values,
    numbered,
    of_actions,
    renamed,
    soft_policy,
    soft_value,
    taken_values,
    target_entropy,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import ActorCritics, squash
from gymnasium_solver.nets.renorm import batch_statistics, take_moments

ALPHA_BETA1 = 0.9  # Adam's, of the temperature


Bounds = Mapping[str, Tensor]
"""r_max and d_max of batch renormalisation."""
Moments = list[Tensor]
"""Batch statistics of the layers, for `take_moments`."""


def joint_pass(
    net: ActorCritics, now: Tensor, following: Tensor, bounds: Bounds
) -> tuple[Tensor, Tensor, Moments]:
    """The critics' outputs for both inputs [B, W], normalised together, and their statistics."""
    with batch_statistics(net.critic.mlps, (bounds["r_max"], bounds["d_max"])) as moments:
        both = net.critic.mlps(torch.cat([now, following]))
    outputs, following = net.critic.shaped(both).unflatten(1, (2, -1)).unbind(1)  # [n, B, ...]
    return outputs, following.detach(), moments


def critic_loss(
    net: ActorCritics, batch: ReplayBatch, alpha: Tensor, bounds: Bounds
) -> tuple[list[Tensor], Moments]:
    """Return [loss, mean Q-value, absolute TD errors [B]] and the critics' batch statistics."""
    assert batch.noise is not None
    next_x = net.encoder(batch.next_obs)
    with torch.no_grad():
        next_actions, next_log_prob = squash(net.actor_outputs(batch.next_obs), batch.noise)
    now = net.critic.inputs(net.encoder(batch.obs), batch.actions)
    next_inputs = net.critic.inputs(next_x, next_actions)
    outputs, following, moments = joint_pass(net, now, next_inputs, bounds)
    head, entropy = net.head, -(alpha * next_log_prob)
    wanted = head.target(head.lowest(following), batch.reward, batch.discount, entropy)
    return list(head.critics_loss(outputs, wanted, batch.weight)), moments


def discrete_critic_loss(
    net: ActorCritics, batch: ReplayBatch, alpha: Tensor, bounds: Bounds
) -> tuple[list[Tensor], Moments]:
    next_x = net.encoder(batch.next_obs)
    with torch.no_grad():
        log_probs = legal_log_probs(net.actor_outputs(batch.next_obs), batch.next_mask)
    now = net.critic.inputs(net.encoder(batch.obs), None)
    outputs, following, moments = joint_pass(net, now, net.critic.inputs(next_x, None), bounds)
    next_value = soft_value(log_probs, net.head.value(following).amin(0), alpha)
    wanted = net.head.known(batch.reward + batch.discount * next_value)
    chosen = of_actions(outputs, batch.actions)
    return list(net.head.critics_loss(chosen, wanted, batch.weight)), moments


def actor_loss(
    net: ActorCritics, batch: ActorBatch, alpha: Tensor, bounds: Bounds
) -> tuple[list[Tensor], Moments]:
    """Return [loss, estimate of the entropy] and the actor's batch statistics."""
    assert batch.noise is not None
    x = net.encoder(batch.obs)
    with batch_statistics(net.actor.layers, (bounds["r_max"], bounds["d_max"])) as moments:
        outputs = net.actor_outputs(batch.obs)
    actions, log_prob = squash(outputs, batch.noise)
    q = net.head.value(net.critic(x, actions)).amin(0)
    return [(alpha * log_prob - q).mean(), -log_prob.detach().mean()], moments


def discrete_actor_loss(
    net: ActorCritics, batch: ActorBatch, alpha: Tensor, bounds: Bounds
) -> tuple[list[Tensor], Moments]:
    x = net.encoder(batch.obs)
    with batch_statistics(net.actor.layers, (bounds["r_max"], bounds["d_max"])) as moments:
        outputs = net.actor_outputs(batch.obs)
    log_probs = legal_log_probs(outputs, batch.mask)
    with torch.no_grad():
        q = net.head.value(net.critic(x)).amin(0)
    entropy = -(log_probs.exp() * log_probs).sum(1)
    return [-soft_value(log_probs, q, alpha).mean(), entropy.detach().mean()], moments


class CrossQ(ReplayLearner):
    Config = CrossQConfig
    config: CrossQConfig
    net: ActorCritics
    n_actions: int
    width: int

    def build(self) -> None:
        self.net = build_soft_networks(self, norm="renorm")
        self.policy = soft_policy(self)
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor)
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic)
        self.alpha = add_alpha(self, beta1=ALPHA_BETA1)
        turn = lambda: actor_turn(self)  # noqa: E731
        self.program = self.add_program(self.step, turn=turn, one_graph=False)

    def critic_loss(
        self, batch: ReplayBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        own = discrete_critic_loss if self.n_actions else critic_loss
        (loss, q, errors), moments = own(self.net, batch, c["alpha"], _bounds(c))
        return loss, {"loss": loss, "q": q, "errors": errors} | numbered(moments)

    def actor_loss(
        self, batch: ActorBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        own = discrete_actor_loss if self.n_actions else actor_loss
        (loss, entropy), moments = own(self.net, batch, c["alpha"], _bounds(c))
        return loss, {"loss": loss, "entropy": entropy} | numbered(moments)

    # -- the update -------------------------------------------------------------------------

    def step(self, batch: ReplayBatch, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the temperature."""
        alpha = alpha_of(self, hp)
        given = batch._replace(noise=self._noise(batch), mask=None)
        lr = hp.get("critic_lr", hp["policy_lr"])
        steps = self.critic(given, {"alpha": alpha, **self._bounds(self.critic)}, lr)
        take_moments(self.net.critic.mlps, moments_in(steps.by_sample))
        metrics = renamed(steps.last(), CRITIC_METRICS)
        if trains_actor:
            metrics |= self._train_actor(batch, alpha, hp)
        return Learnt(metrics, steps.by_sample["errors"])

    def _train_actor(self, batch: ReplayBatch, alpha: float | Tensor, hp: Hp) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        given = ActorBatch(batch.obs, batch.mask, self._noise(batch))
        numbers = {"alpha": alpha, **self._bounds(self.actor)}
        steps = self.actor(given, numbers, hp["policy_lr"])
        take_moments(self.net.actor.layers, moments_in(steps.by_sample))
        found = steps.last()
        metrics = {**renamed(found, ACTOR_METRICS), "opt/policy/alpha": alpha}
        if self.alpha is not None:
            gap = found["entropy"] - target_entropy(self, hp, batch)
            metrics |= learn_alpha(self, self.alpha, self.critic, gap, hp)
        return metrics

    def forward_all(self, batch: ReplayBatch) -> Tensor | None:
        return taken_values(self.net, batch)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)

    def _noise(self, batch: ReplayBatch) -> Tensor | None:
        """Noise for sampling actions; discrete actions need none."""
        return None if self.n_actions else self.normal_noise(*batch.actions.shape)

    def _bounds(self, descent: Descent) -> dict[str, float]:
        """Bounds on r and d of a network after its updates so far."""
        cfg = self.config
        if descent.optimizer.n_steps < cfg.renorm_warmup:
            return {"r_max": 1.0, "d_max": 0.0}
        return {"r_max": cfg.renorm_r_max, "d_max": cfg.renorm_d_max}


def _bounds(c: Mapping[str, Tensor]) -> Bounds:
    return {"r_max": c["r_max"], "d_max": c["d_max"]}
