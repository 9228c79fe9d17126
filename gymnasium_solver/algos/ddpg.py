"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

TD3 as it was before its three additions: one critic, targets without noise, and an actor that is
trained, like all targets, at every update. TD3 fixes its overestimation and is nearly always the
better choice. Differences from the paper: no batch norm, no weight decay on the critic
(`weight_decay`), a larger `tau` (0.005), and truncated episodes bootstrap from their true final
observation.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gymnasium_solver.algos import deterministic
from gymnasium_solver.algos.configs.ddpg import DDPGConfig
from gymnasium_solver.algos.continuous import (
    Loss,
    learn_actor,
    learn_critics,
    next_values,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.policies.continuous import DeterministicPolicy


class DDPG(ReplayLearner):
    Config = DDPGConfig
    config: DDPGConfig
    net: ActorCritics
    policy: DeterministicPolicy
    target_actor: Actor
    target_critic: Critics

    def build(self) -> None:
        deterministic.build(self)
        self.program = self.add_program(self.step)

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        targets = (self.target_actor, self.target_critic)
        return deterministic.critic_loss(self.net, *targets, batch, c, self.burn_in)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        return deterministic.actor_loss(self.net, batch, self.burn_in)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, turn: None) -> Learnt:
        """Update the critic, the actor and the target networks."""
        metrics, errors = learn_critics(self, batch, hp, None, {})
        metrics |= learn_actor(self, batch, hp)
        return Learnt(metrics, errors)

    forward_all, next_values = taken_values, next_values
