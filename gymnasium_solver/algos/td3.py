"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

An update trains both critics on the minimum of the target critics, at the target actor's action
plus clipped noise (target policy smoothing). Every `policy_delay` updates, the actor is trained to
maximise the first critic, and the target networks are updated. With `recurrent`, all networks learn
from sequences of the replay (algos/batch_rows.py). Differences from common
implementations: truncated episodes bootstrap from their true final observation; noise is in the
policy's units, in which the action bounds are [-1, 1]; layers use torch's default initialisation.
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from gymnasium_solver.algos.configs.td3 import TD3Config
from gymnasium_solver.algos.continuous import (
    ACTOR_METRICS,
    Loss,
    actor_turn,
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
        is_short = cfg.has_short_sequences
        self.actor = self.add_descent(
            "policy", self.actor_loss, net.actor, tau=cfg.tau, record=is_short
        )
        self.critic = self.add_descent(
            "critic", self.critic_loss, net.critic,
            tau=cfg.tau, ema_every=cfg.policy_delay, record=is_short,
        )  # fmt: skip
        self.target_actor = cast(Actor, self.actor.target)
        self.target_critic = cast(Critics, self.critic.target)
        self.program = self.add_program(self.step, turn=lambda: actor_turn(self))

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        targets = (self.target_actor, self.target_critic)
        smoothing = (c["noise_std"], c["noise_clip"])
        return deterministic_critic_loss(self.net, *targets, batch, self.burn_in, *smoothing)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        return deterministic_actor_loss(self.net, batch, self.burn_in)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.config.exploration_noise.at(env_steps, total_steps)

    def step(self, batch: Any, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the target networks."""
        cfg, noise = self.config, self.normal_noise(*batch.actions.shape)
        smoothing = {"noise_std": cfg.target_noise, "noise_clip": cfg.target_noise_clip}
        metrics, errors = learn_critics(self, batch, hp, noise, smoothing)
        if trains_actor:
            metrics |= renamed(learn_actor(self, batch, hp), ACTOR_METRICS)
        return Learnt(metrics, errors)

    forward_all, next_values = taken_values, next_values
