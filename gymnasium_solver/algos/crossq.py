"""CrossQ: SAC without target networks, using batch renormalisation (Bhatt et al. 2024).

The critics process (s, a) and (s', a') in one forward pass, so both are normalised by the
statistics of the same mixture. This makes targets from the online critics stable, and learning fast
with a low update-to-data ratio. Batch renormalisation precedes every linear layer of the critics
and the actor. Adam uses beta1 0.5, the actor is updated every third step, and the critics are wide.
Next actions, the critics in the actor's loss, and acting use running statistics. Differences from
the authors' code: truncated episodes bootstrap from their true final observation; log standard
deviations are clamped to [-20, 2]; layers use torch's default initialisation; only Box actions are
supported.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.crossq import CrossQConfig
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    actor_turn,
    add_alpha,
    alpha_of,
    build_networks,
    learn_alpha,
    next_values,
    renamed,
    soft_policy,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import ActorCritics, squash
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.nets.renorm import take_moments, train_pass
from gymnasium_solver.spaces.action_dists import require_bounded_box

ALPHA_BETA1 = 0.9  # Adam's, of the temperature


def critic_loss(
    net: ActorCritics, batch: ReplayBatch, alpha: Tensor, r_max: Tensor, d_max: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return [loss, mean Q-value, absolute TD errors [B]] and the critics' batch statistics."""
    assert batch.noise is not None
    next_x = net.encoder(batch.next_obs)
    with torch.no_grad():
        next_actions, next_log_prob = squash(net.actor(next_x), batch.noise)
    now = net.critic.inputs(net.encoder(batch.obs), batch.actions)
    following = net.critic.inputs(next_x, next_actions)
    both, moments = train_pass(net.critic.mlps.layers, torch.cat([now, following]), r_max, d_max)
    outputs, following = net.critic.shaped(both).unflatten(1, (2, -1)).unbind(1)  # [n, B, ...]
    head, entropy = net.head, -(alpha * next_log_prob)
    lowest = head.lowest(following.detach())
    wanted = head.target(lowest, batch.reward, batch.discount, entropy)
    return list(head.critics_loss(outputs, wanted, batch.weight)), moments


def actor_loss(
    net: ActorCritics,
    obs: TensorObs,
    noise: Tensor,
    alpha: Tensor,
    r_max: Tensor,
    d_max: Tensor,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return [loss, estimate of the entropy] and the actor's batch statistics."""
    x = net.encoder(obs)
    outputs, moments = train_pass(net.actor.layers, net.actor.features(x), r_max, d_max)
    actions, log_prob = squash(outputs, noise)
    q = net.head.value(net.critic(x, actions)).amin(0)
    return [(alpha * log_prob - q).mean(), -log_prob.detach().mean()], moments


class CrossQ(ReplayLearner):
    Config = CrossQConfig
    config: CrossQConfig
    net: ActorCritics

    def build(self) -> None:
        cfg = self.config
        self.width = require_bounded_box(self.action_space, "crossq", cfg.env_id).width
        self.net = build_networks(
            self,
            n_actor_outputs=2 * self.width,
            n_critics=cfg.n_critics,
            n_critic_actions=self.width,
            alpha=cfg.first_alpha(is_discrete=False),
            norm="renorm",
        )
        self.policy = soft_policy(self)
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor)
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic)
        self.alpha = add_alpha(self, beta1=ALPHA_BETA1)
        turn = lambda: actor_turn(self)  # noqa: E731
        self.program = self.add_program(self.step, turn=turn, one_graph=False)

    def critic_loss(
        self, batch: ReplayBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (loss, q, errors), moments = critic_loss(self.net, batch, **c)
        return loss, {"loss": loss, "q": q, "errors": errors} | _numbered(moments)

    def actor_loss(
        self, batch: tuple[TensorObs, Tensor], c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (loss, entropy), moments = actor_loss(self.net, *batch, **c)
        return loss, {"loss": loss, "entropy": entropy} | _numbered(moments)

    # -- the update -------------------------------------------------------------------------

    def step(self, batch: ReplayBatch, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the temperature."""
        alpha = alpha_of(self, hp)
        noisy = batch._replace(noise=self.normal_noise(*batch.actions.shape))
        lr = hp.get("critic_lr", hp["policy_lr"])
        steps = self.critic(noisy, {"alpha": alpha, **self._bounds(self.critic)}, lr)
        take_moments(self.net.critic.mlps.layers, _moments(steps.by_sample))
        metrics = renamed(steps.last(), CRITIC_METRICS)
        if trains_actor:
            metrics |= self._train_actor(batch, alpha, hp)
        return Learnt(metrics, steps.by_sample["errors"])

    def _train_actor(self, batch: ReplayBatch, alpha: float | Tensor, hp: Hp) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        given = (batch.obs, self.normal_noise(*batch.actions.shape))
        numbers = {"alpha": alpha, **self._bounds(self.actor)}
        steps = self.actor(given, numbers, hp["policy_lr"])
        take_moments(self.net.actor.layers, _moments(steps.by_sample))
        found = steps.last()
        metrics = {**renamed(found, ACTOR_METRICS), "opt/policy/alpha": alpha}
        if self.alpha is not None:
            gap = found["entropy"] - hp.get("target_entropy", -self.width)
            metrics |= learn_alpha(self, self.alpha, self.critic, gap, hp)
        return metrics

    def forward_all(self, batch: ReplayBatch) -> Tensor:
        return taken_values(self.net, batch)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)

    def _bounds(self, descent: Descent) -> dict[str, float]:
        """Bounds on r and d of a network after its updates so far."""
        cfg = self.config
        if descent.optimizer.n_steps < cfg.renorm_warmup:
            return {"r_max": 1.0, "d_max": 0.0}
        return {"r_max": cfg.renorm_r_max, "d_max": cfg.renorm_d_max}


def _numbered(moments: list[Tensor]) -> dict[str, Tensor]:
    """Batch statistics as outputs of a loss."""
    return {f"moment {i}": moment for i, moment in enumerate(moments)}


def _moments(outputs: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for name, value in outputs.items() if name.startswith("moment")]
