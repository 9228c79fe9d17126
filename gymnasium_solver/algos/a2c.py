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
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.a2c import A2CConfig
from gymnasium_solver.algos.extensions.extension import Learnt
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import RolloutValues, build_actor_critic, details, prepare
from gymnasium_solver.algos.policy_loss import Batch, corrected, policy_gradient_loss, scaled_losses
from gymnasium_solver.data.rollout import Rollout


class A2C(Learner):
    Config = A2CConfig
    takes_stale = True  # weighted by `corrected`
    config: A2CConfig

    def build(self) -> None:
        self.net, self.policy = build_actor_critic(self)
        record = self.config.has_short_sequences
        self.descent = self.add_descent("policy", self.loss, self.net, norm="all", record=record)
        self.values = RolloutValues(self)

    def loss(self, batch: Batch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return policy_gradient_loss(self.net, self.actions, batch, c)

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        cfg, valid = self.config, rollout.valid
        extrinsic, bonus = self.scaled_reward(rollout), self.bonus(rollout)
        values = self.values(rollout)
        advantage = ops.gae(
            extrinsic if bonus is None else extrinsic + bonus, values,
            rollout.terminated, rollout.truncated, valid, cfg.gamma, cfg.gae_lambda,
        )  # fmt: skip
        used, returns = advantage, advantage + values[:-1]
        if cfg.normalize_advantages == "rollout":
            used = np.where(valid, ops.standardize(advantage[valid], advantage), 0.0)
        data = prepare(self, rollout, used, returns, values[:-1], advantage)
        if rollout.version < self.n_updates:  # made by collectors with older weights
            data = data._replace(batch=corrected(self.net, self.actions, data.batch))

        numbers = {"ent_coef": hp["ent_coef"], "vf_coef": hp["vf_coef"]}
        more: dict[str, float] = {}
        if self.take_details():
            more = details(self, self.descent, data, numbers, None, rollout)
        steps = self.descent(data.batch, numbers, hp["policy_lr"])
        self.n_updates += 1
        for extension in self.extensions:
            more |= extension.learn(Learnt(rollout, extrinsic, values, hp["policy_lr"]))

        found = steps.numbers()
        quality = data.explained_variance
        return {
            **found,
            **scaled_losses(found, hp),
            **({} if math.isnan(quality) else {"opt/value/explained_var": quality}),
            **more,
        }
