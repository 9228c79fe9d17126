"""REINFORCE: Monte Carlo policy gradient (Williams 1992), with an optional learnt baseline.

One pass over each rollout, one gradient step per minibatch. Returns end with the episode or the
rollout: there is no bootstrap, so n_steps should be well above the episode length. `policy_targets:
advantages` subtracts a learnt value baseline, fitted to the returns.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.on_policy import (
    Batch,
    Prepared,
    build_actor_critic,
    gradient_details,
    policy_gradient_loss,
    prepare,
    rollout_values,
    scaled_losses,
)
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule
from gymnasium_solver.config.schema import (
    ActorCriticFields,
    BatchSize,
    Count,
    LearnerConfig,
    MinibatchFields,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.observations import Space


class ReinforceConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
    n_steps: Count = 2048
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    Should hold several whole episodes."""
    batch_size: BatchSize = 1.0  # type: ignore[assignment]
    """Samples per gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step per rollout,
    the textbook policy gradient."""
    policy_lr: PositiveSchedule = Schedule.constant(1e-2)
    """Learning rate. Higher: faster learning, until it becomes unstable."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.01)
    """Weight of the entropy bonus. Higher: more exploration, slower convergence."""
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Weight of an action: the rewards that follow it, or those of its whole episode (more
    variance)."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """Weight actions by returns, or by returns minus a learned value (less variance)."""
    normalize_returns: bool = True
    """Standardise the weights over the rollout. Off: the textbook gradient, sensitive to scale."""
    vf_coef: NonNegativeSchedule = Schedule.constant(0.5)
    """Weight of the value loss, if a value is learned."""


class Reinforce(Learner):
    Config = ReinforceConfig
    net: ActorCritic
    policy: ActorPolicy

    def __init__(
        self,
        config: ReinforceConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: ReinforceConfig = config
        self.net, self.policy, self.optimizer = build_actor_critic(
            self, critic=config.policy_targets == "advantages"
        )
        self.gradient = self.add_gradient(
            "policy", self._loss, self.optimizer, record=config.has_short_sequences
        )

    def _loss(self, batch: Batch, coefficients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        terms = policy_gradient_loss(self.net, self.actions, batch, *coefficients)
        return terms.total, list(terms)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Update from one rollout and return the metrics."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        data = self._prepare(rollout)
        terms: list[Tensor] = []
        norms: list[Tensor] = []
        details: dict[str, float] = {}
        is_detailed = self.take_details()
        # No constant minibatch sizes: using a sample twice would change the gradient.
        for part in data.minibatches(self.config.batch_size, self.rng, self.device, data.n):
            with self.timer.detail("gradient"):
                grad, *values = self.gradient(part, [hp["ent_coef"], hp["vf_coef"]])
            if is_detailed and not norms:
                details = gradient_details(self, self.net, part, grad, data, rollout)
            with self.timer.detail("optimiser"):
                norms.append(self.optimizer.step(grad, hp["policy_lr"]))
            terms.append(torch.stack(values))
        self.n_updates += 1
        total, policy, value, entropy = torch.stack(terms).mean(0).tolist()
        has_critic = self.net.critic_head is not None
        return {
            "opt/loss/total": total,
            "opt/loss/policy": policy,
            "opt/loss/value": value,
            "opt/policy/entropy": entropy,
            "opt/grads/norm/all": float(torch.stack(norms).mean()),
            **scaled_losses(value, entropy, hp, has_critic),
            **({"opt/value/explained_var": data.explained_variance} if has_critic else {}),
            **details,
            **hp_metrics(hp),
        }

    def _prepare(self, rollout: Rollout) -> Prepared:
        """Compute the returns and the weights of the actions: returns, or returns minus values."""
        cfg, valid = self.config, rollout.valid
        sum_up = ops.returns_to_go if cfg.returns_type == "mc:rtg" else ops.episode_returns
        returns = sum_up(self.normalized_reward(rollout), rollout.done, valid, cfg.gamma)
        values = np.zeros_like(returns)
        if self.net.critic_head is not None:
            values = rollout_values(self.net, rollout, self.device)[:-1]
        advantage = returns - values
        weight = advantage
        if cfg.normalize_returns:
            weight = ops.standardize(advantage[valid], advantage)
        return prepare(self, self.net, rollout, weight, returns, values, advantage)
