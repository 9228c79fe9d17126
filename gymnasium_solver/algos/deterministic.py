"""What TD3 and DDPG share: settings, networks with their targets, exploration noise.

Not a base algorithm: each has its own losses and its own update.
"""

from typing import Annotated, Literal

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from gymnasium_solver.algos.off_policy import OffPolicyConfig, OffPolicyLearner
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule
from gymnasium_solver.config.schema import Count, CriticFields, Float
from gymnasium_solver.nets.actor_critics import ActorCritics, bounded_width
from gymnasium_solver.policies.continuous import DeterministicPolicy

# What noise keeps of itself in a step; of Ornstein-Uhlenbeck noise as in Lillicrap et al. 2016.
KEEPS = {"gaussian": 0.0, "ou": 0.85}
NoiseType = Literal["gaussian", "ou"]


class DeterministicConfig(OffPolicyConfig, CriticFields):
    buffer_size: Count = 1_000_000
    """Transitions kept, over all envs; the oldest go first. More: more varied, older data."""
    max_grad_norm: Annotated[Float, Field(gt=0)] | None = None
    """Longest gradient allowed; longer ones are shortened. null: no limit."""
    tau: Annotated[Float, Field(gt=0, le=1)] = 0.005
    """Share by which the target networks follow at each of their updates. Higher: faster, less
    steady."""
    exploration_noise: NonNegativeSchedule = Schedule.constant(0.1)
    """Deviation of the noise on actions in training, where 1 is half the range of an action.
    Higher: explores more."""
    exploration_noise_type: NoiseType = "gaussian"
    """gaussian: new in every step; ou: wanders (Ornstein-Uhlenbeck), which pushes one way longer;
    its deviation over time is about twice exploration_noise."""


class DeterministicLearner(OffPolicyLearner):
    net: ActorCritics
    policy: DeterministicPolicy

    def __init__(
        self,
        config: DeterministicConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str,
        n_critics: int,
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.noise_schedule = config.exploration_noise
        width = bounded_width(action_space, config.algo_id, config.env_id)
        self.net = ActorCritics(
            observation_space,
            n_actor_outputs=width,
            n_critics=n_critics,
            n_critic_actions=width,
            **self.network._asdict(),
            critic_hidden_dims=config.critic_hidden_dims,
            normalize_obs=config.normalize_obs,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        keeps = KEEPS[config.exploration_noise_type]
        self.policy = DeterministicPolicy(
            self.net, observation_space, action_space, self.act_rng, keeps
        )
        self.policy.noise_std = self.noise_schedule.values[-1]  # until a checkpoint tells
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic)
        self.target_actor = self.set_target(self.actor_optimizer)
        self.target_critic = self.set_target(self.critic_optimizer)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.noise_std = self.noise_schedule.at(env_steps, total_steps)


def actor_loss(net: ActorCritics, x: Tensor) -> Tensor:
    """Minus the first critic's value of what the actor does."""
    x = net.cast(x)
    actions = torch.tanh(net.actor(x))
    return -net.critic.first(torch.cat([x, actions], dim=1)).mean()
