"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

An update trains both critics on the minimum of the target critics, at the target actor's action
plus clipped noise (target policy smoothing). Every `policy_delay` updates, the actor is trained to
maximise the first critic, and the target networks are updated. Differences from common
implementations: truncated episodes bootstrap from their true final observation; noise is in the
policy's units, in which the action bounds are [-1, 1]; layers use torch's default initialisation.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.td3 import TD3Config
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    CRITIC_METRICS,
    actor_turn,
    build_networks,
    deterministic_actor_loss,
    deterministic_policy,
    next_values,
    renamed,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box


def critic_loss(
    net: ActorCritics,
    target_actor: Actor,
    target_critic: Critics,
    batch: ReplayBatch,
    noise_std: Tensor,
    noise_clip: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    assert batch.noise is not None
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        smoothing = (batch.noise * noise_std).clamp(-noise_clip, noise_clip)
        next_actions = (torch.tanh(target_actor(next_x)) + smoothing).clamp(-1.0, 1.0)
        following = net.head.lowest(target_critic(next_x, next_actions))
        wanted = net.head.target(following, batch.reward, batch.discount)
    outputs = net.critic(net.encoder(batch.obs), batch.actions)
    return net.head.critics_loss(outputs, wanted, batch.weight)


class TD3(ReplayLearner):
    Config = TD3Config
    config: TD3Config
    net: ActorCritics
    policy: DeterministicPolicy

    def build(self) -> None:
        cfg = self.config
        width = require_bounded_box(self.action_space, cfg.algo_id, cfg.env_id).width
        self.net = net = build_networks(
            self, n_actor_outputs=width, n_critics=cfg.n_critics, n_critic_actions=width
        )
        self.policy = deterministic_policy(self)
        self.actor = self.add_descent("policy", self.actor_loss, net.actor, tau=cfg.tau)
        self.critic = self.add_descent(
            "critic", self.critic_loss, net.critic, tau=cfg.tau, ema_every=cfg.policy_delay
        )
        self.target_actor = cast(Actor, self.actor.target)
        self.target_critic = cast(Critics, self.critic.target)
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(
        self, batch: ReplayBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        total, q, errors = critic_loss(self.net, self.target_actor, self.target_critic, batch, **c)
        return total, {"loss": total, "q": q, "errors": errors}

    def actor_loss(
        self, obs: TensorObs, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = deterministic_actor_loss(self.net, obs)
        return loss, {"loss": loss}

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: ReplayBatch, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the target networks."""
        cfg = self.config
        noisy = batch._replace(noise=self.normal_noise(*batch.actions.shape))
        smoothing = {"noise_std": cfg.target_noise, "noise_clip": cfg.target_noise_clip}
        steps = self.critic(noisy, smoothing, hp.get("critic_lr", hp["policy_lr"]))
        metrics = renamed(steps.last(), CRITIC_METRICS)
        if trains_actor:
            metrics |= renamed(self.actor(batch.obs, {}, hp["policy_lr"]).last(), ACTOR_METRICS)
        return Learnt(metrics, steps.by_sample["errors"])

    def forward_all(self, batch: ReplayBatch) -> Tensor:
        return taken_values(self.net, batch)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)
