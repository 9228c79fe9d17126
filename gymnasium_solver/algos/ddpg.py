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
    ACTOR_METRICS,
    Loss,
    build_networks,
    deterministic_actor_loss,
    deterministic_critic_loss,
    deterministic_policy,
    learn_actor,
    learn_critics,
    next_values,
    renamed,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
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

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        targets = (self.target_actor, self.target_critic)
        return deterministic_critic_loss(self.net, *targets, batch, self.burn_in)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        return deterministic_actor_loss(self.net, batch, self.burn_in)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, turn: None) -> Learnt:
        """Update the critic, the actor and the target networks."""
        metrics, errors = learn_critics(self, batch, hp, None, {})
        metrics |= renamed(learn_actor(self, batch, hp), ACTOR_METRICS)
        return Learnt(metrics, errors)

    forward_all, next_values = taken_values, next_values
