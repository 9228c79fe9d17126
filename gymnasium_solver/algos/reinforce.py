"""REINFORCE: Monte Carlo policy gradient (Williams 1992), with an optional learnt baseline.

One pass over each rollout, one gradient step per minibatch. Returns end with the episode or the
rollout: there is no bootstrap, so n_steps should be well above the episode length.

Baselines: none, the mean, a learnt value fitted to the returns, or RLOO (Kool et al. 2019; Ahmadian
et al. 2024), the mean return of the other environments that started from the same seed. With
rewards to go, theirs at the same step of the episode; none of these depends on the actions it is
compared with. REINFORCE++ (Hu 2025) is `clip_range` with `normalize_returns`, over several passes;
with `baseline: rloo` it is its form with a baseline. `elite` learns from the best episodes only.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.advantages import elite_rows, leave_one_out
from gymnasium_solver.algos.configs.reinforce import ReinforceConfig
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import (
    Prepared,
    RolloutValues,
    build_actor_critic,
    details,
    prepare,
)
from gymnasium_solver.algos.policy_loss import Batch, policy_gradient_loss, scaled_losses
from gymnasium_solver.data.rollout import Rollout


class Reinforce(Learner):
    Config = ReinforceConfig
    config: ReinforceConfig

    def build(self) -> None:
        cfg = self.config
        self.has_critic = cfg.resolved_baseline == "value"
        self.net, self.policy = build_actor_critic(self, critic=self.has_critic)
        record = cfg.has_short_sequences
        self.descent = self.add_descent("policy", self.loss, self.net, norm="all", record=record)
        self.values = RolloutValues(self)

    def loss(self, batch: Batch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return policy_gradient_loss(self.net, self.actions, batch, c)

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        cfg, data = self.config, self._prepare(rollout)
        names = ["ent_coef", "vf_coef", "clip_range"]
        numbers = {name: hp[name] for name in names if name in hp}
        parts = [
            part  # no constant sizes: using a sample twice would change the gradient
            for _ in range(cfg.n_epochs)
            for part in data.batch.minibatches(self.descent, cfg.batch_size, self.rng)
        ]
        more: dict[str, float] = {}
        if self.take_details():
            more = details(self, self.descent, data, numbers, parts[0], rollout)
        steps = self.descent(data.batch, numbers, hp["policy_lr"], parts)
        self.n_updates += 1
        found = steps.numbers()
        if self.has_critic:
            more["opt/value/explained_var"] = data.explained_variance
        return found | scaled_losses(found, hp, self.has_critic) | more

    def _prepare(self, rollout: Rollout) -> Prepared:
        """Compute the returns and the weights of the actions: returns, or returns minus values."""
        cfg, valid = self.config, rollout.valid
        sum_up = ops.returns_to_go if cfg.returns_type == "mc:rtg" else ops.episode_returns
        returns = sum_up(self.rewards(rollout), rollout.done, valid, cfg.gamma)
        values, kind = np.zeros_like(returns), cfg.resolved_baseline
        if kind == "value":
            values = self.values(rollout)[:-1]
        elif kind == "mean" and valid.any():
            values = np.full_like(returns, returns[valid].mean())
        elif kind == "rloo":
            is_whole = cfg.returns_type == "mc:episode"
            values = leave_one_out(returns, rollout.done, valid, cfg.group_size, is_whole)
        advantage = returns - values
        weight = advantage
        if cfg.normalize_returns:
            weight = ops.standardize(advantage[valid], advantage)
        if cfg.elite is not None:
            chosen = elite_rows(rollout.reward, rollout.done, valid, cfg.elite)
            rollout = replace(rollout, valid=chosen)
        return prepare(self, rollout, weight, returns, values, advantage)
