"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

An update trains both critics on the minimum of the target critics, at the target actor's action
plus clipped noise (target policy smoothing). Every `policy_delay` updates, the actor is trained to
maximise the first critic, and the target networks are updated. With `recurrent`, all networks learn
from sequences of the replay (algos/batch_rows.py). Differences from common
implementations: truncated episodes bootstrap from their true final observation; noise is in the
policy's units, in which the action bounds are [-1, 1]; layers use torch's default initialisation.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gymnasium_solver.algos import deterministic
from gymnasium_solver.algos.configs.td3 import TD3Config
from gymnasium_solver.algos.continuous import (
    Loss,
    actor_turn,
    learn_actor,
    learn_critics,
    next_values,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.policies.continuous import DeterministicPolicy


class TD3(ReplayLearner):
    Config = TD3Config
    config: TD3Config
    net: ActorCritics
    policy: DeterministicPolicy
    target_actor: Actor
    target_critic: Critics

    def build(self) -> None:
        deterministic.build(self)
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        targets = (self.target_actor, self.target_critic)
        return deterministic.critic_loss(self.net, *targets, batch, c, self.burn_in)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        return deterministic.actor_loss(self.net, batch, self.burn_in)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the target networks."""
        cfg, noise = self.config, self.normal_noise(*batch.actions.shape)
        smoothing = {"noise_std": cfg.target_noise, "noise_clip": cfg.target_noise_clip}
        metrics, errors = learn_critics(self, batch, hp, noise, smoothing)
        if trains_actor:
            metrics |= learn_actor(self, batch, hp)
        return Learnt(metrics, errors)

    forward_all, next_values = taken_values, next_values
