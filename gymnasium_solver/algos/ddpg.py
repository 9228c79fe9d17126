"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

An update trains the critic on the value of the target actor's action under the target critic, then
the actor to maximise the critic, and then updates both target networks. TD3 fixes its
overestimation and is nearly always the better choice. Differences from the paper: no batch norm, no
weight decay on the critic (`weight_decay`), a larger `tau` (0.005), and truncated episodes
bootstrap from their true final observation.
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from gymnasium_solver.algos.configs.ddpg import DDPGConfig
from gymnasium_solver.algos.continuous import (
    build_networks,
    deterministic_actor_loss,
    deterministic_critic_loss,
    deterministic_policy,
    learn_deterministically,
    next_values,
    numbered,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.policies.continuous import DeterministicPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box


class DDPG(ReplayLearner):
    Config = DDPGConfig
    config: DDPGConfig
    net: ActorCritics
    policy: DeterministicPolicy

    def build(self) -> None:
        cfg = self.config
        width = require_bounded_box(self.action_space, cfg.algo_id, cfg.env_id).width
        self.net = build_networks(self, n_actor_outputs=width, n_critics=1, n_critic_actions=width)
        self.policy = deterministic_policy(self)
        settings: dict[str, Any] = {"tau": cfg.tau, "record": cfg.has_short_sequences}
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor, **settings)
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic, **settings)
        self.target_actor = cast(Actor, self.actor.target)
        self.target_critic = cast(Critics, self.critic.target)
        self.program = self.add_program(self.step)

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        total, q, errors, moments = deterministic_critic_loss(
            self.net, self.target_actor, self.target_critic, batch, self.burn_in
        )
        return total, {"loss": total, "q": q, "errors": errors} | numbered(moments)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        loss, moments = deterministic_actor_loss(self.net, batch, self.burn_in)
        return loss, {"loss": loss} | numbered(moments)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, turn: None) -> Learnt:
        """Update the critic, the actor and the target networks."""
        return learn_deterministically(self, batch, hp, None, {}, True)

    def forward_all(self, batch: Any) -> Tensor | None:
        return taken_values(self.net, batch, self.burn_in)

    def next_values(self, batch: ReplayBatch) -> Tensor:
        return next_values(self.net, batch)
