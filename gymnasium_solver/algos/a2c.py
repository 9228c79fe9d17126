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

import numpy as np
import torch

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.a2c import A2CConfig
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.on_policy import (
    Prepared,
    corrected,
    gradient_details,
    prepare,
    scaled_losses,
)
from gymnasium_solver.algos.rollout_learner import RolloutLearner
from gymnasium_solver.data.rollout import Rollout


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
