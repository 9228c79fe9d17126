"""A2C: advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016).

Short rollouts of many environments, one gradient step on each. There is no ratio and no clipping:
the data are from the policy that learns from them (those of collectors with older weights are
weighted). Differences from common implementations:
- Values are computed in the update, not while acting; truncated episodes bootstrap from their true
  final observation (see ops.gae).
- An epoch, the unit of reports and evaluations, has many updates: `n_steps` rows of every
  environment in rollouts of `rollout_steps` rows.
- RMSprop as TensorFlow has it (`rmsprop_tf`), which the published scores rest on: the accumulator
  starts at 1, so that first steps are short, and epsilon is inside the root.
"""

import math
from typing import Annotated, Literal

import numpy as np
import torch

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.on_policy import (
    Prepared,
    corrected,
    gradient_details,
    prepare,
    scaled_losses,
)
from gymnasium_solver.algos.rollout_learner import RolloutLearner
from gymnasium_solver.algos.self_imitation import SelfImitationFields
from gymnasium_solver.config.schedule import (
    PositiveSchedule,
    Schedule,
    changing,
)
from gymnasium_solver.config.schema import ActorCriticFields, Count, LearnerConfig
from gymnasium_solver.config.search_range import searched
from gymnasium_solver.config.types import OptimizerKind
from gymnasium_solver.data.rollout import Rollout


class A2CConfig(SelfImitationFields, ActorCriticFields, LearnerConfig):
    n_steps: Count = 500
    """Steps per environment in one epoch, the unit of reports and evaluations. Does not change
    learning: rollout_steps does."""
    rollout_steps: Annotated[Count, searched("pow2:4..128", main=True)] = 5
    """Steps per environment between two updates, the n of n-step returns. More: better estimates,
    fewer updates. (n_steps in other libraries.)"""
    gae_lambda: Annotated[float, changing(ge=0, le=1), searched("logit:0.8..0.995", main=True)] = (
        1.0
    )
    """1: n-step returns, up to the end of the rollout, minus the value. Below 1: GAE. 0: one-step
    TD errors."""
    policy_lr: PositiveSchedule = Schedule.constant(7e-4)
    """Learning rate. Higher: faster, until it becomes unstable."""
    optimizer: OptimizerKind = "rmsprop_tf"
    """Optimiser of all networks: adam, adamw, sgd, rmsprop, rmsprop_tf, or a class of torch.optim
    by name."""
    sil_updates: Count = 4
    """Gradient steps of self-imitation after each update. More: imitates harder, slower."""
    normalize_advantages: Literal["rollout", "off"] = "off"
    """Standardise advantages over the rollout, or not."""

    @property
    def rollout_rows(self) -> int:
        return min(self.n_steps, self.rollout_steps)


class A2C(RolloutLearner):
    Config = A2CConfig
    takes_stale = True  # weighted by `corrected`
    config: A2CConfig

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        reward = self.normalized_reward(rollout)
        data = self._prepare(rollout, reward)
        details: dict[str, float] = {}
        with self.timer.detail("gradient"):
            grad, *terms = self.gradient(data.batch, [hp["ent_coef"], hp["vf_coef"]])
        if self.take_details():
            details = gradient_details(self, self.net, data.batch, grad, data, rollout)
        with self.timer.detail("optimiser"):
            norm = self.optimizer.step(grad, hp["policy_lr"])
        self.n_updates += 1
        if self.imitation is not None:
            self.imitation.add(rollout, reward)
            details |= self.imitation.update(hp["policy_lr"])
        quality = data.explained_variance
        total, policy, value, entropy, norm_all = torch.stack([*terms, norm]).tolist()
        return {
            "opt/loss/total": total,
            "opt/loss/policy": policy,
            "opt/loss/value": value,
            "opt/policy/entropy": entropy,
            "opt/grads/norm/all": norm_all,
            **scaled_losses(value, entropy, hp),
            **({} if math.isnan(quality) else {"opt/value/explained_var": quality}),
            **details,
            **hp_metrics(hp),
        }

    def _prepare(self, rollout: Rollout, reward: np.ndarray) -> Prepared:
        """Compute values and advantages and build the training batch."""
        cfg, valid = self.config, rollout.valid
        values = self.values(rollout)
        advantage = ops.gae(
            reward, values, rollout.terminated, rollout.truncated, valid, cfg.gamma, cfg.gae_lambda
        )
        used, returns = advantage, advantage + values[:-1]
        if cfg.normalize_advantages == "rollout":
            used = np.where(valid, ops.standardize(advantage[valid], advantage), 0.0)
        data = prepare(self, self.net, rollout, used, returns, values[:-1], advantage)
        if rollout.version < self.n_updates:  # made by collectors with older weights
            data = data._replace(batch=corrected(self.net, self.actions, data.batch))
        return data
