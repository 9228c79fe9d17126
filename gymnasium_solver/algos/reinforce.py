"""REINFORCE: Monte Carlo policy gradient (Williams 1992), with an optional learnt baseline.

One pass over each rollout, one gradient step per minibatch. Returns end with the episode or the
rollout: there is no bootstrap, so n_steps should be well above the episode length.

Baselines: none, the mean, a learnt value fitted to the returns, or RLOO (Kool et al. 2019; Ahmadian
et al. 2024), the mean return of the other environments that started from the same seed. With
rewards to go, theirs at the same step of the episode; none of these depends on the actions it is
compared with. REINFORCE++ (Hu 2025) is `clip_range` with `normalize_returns`, over several passes;
with `baseline: rloo` it is its form with a baseline. `elite` learns from the best episodes only.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.reinforce import ReinforceConfig
from gymnasium_solver.algos.groups import elite_rows, leave_one_out
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.on_policy import (
    Prepared,
    gradient_details,
    prepare,
    scaled_losses,
)
from gymnasium_solver.algos.rollout_learner import RolloutLearner
from gymnasium_solver.data.rollout import Rollout


class Reinforce(RolloutLearner):
    Config = ReinforceConfig
    config: ReinforceConfig

    @property
    def has_critic(self) -> bool:
        return bool(self.config.resolved_baseline == "value")

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        data = self._prepare(rollout)
        terms: list[Tensor] = []
        norms: list[Tensor] = []
        details: dict[str, float] = {}
        is_detailed = self.take_details()
        coefficients = [hp[name] for name in ("ent_coef", "vf_coef", "clip_range") if name in hp]
        for _ in range(self.config.n_epochs):
            # No constant minibatch sizes: using a sample twice would change the gradient.
            for part in data.minibatches(self.config.batch_size, self.rng, self.device, data.n):
                with self.timer.detail("gradient"):
                    grad, *values = self.gradient(part, coefficients)
                if is_detailed and not norms:
                    details = gradient_details(self, self.net, part, grad, data, rollout)
                with self.timer.detail("optimiser"):
                    norms.append(self.optimizer.step(grad, hp["policy_lr"]))
                terms.append(torch.stack(values))
        self.n_updates += 1
        total, policy, value, entropy = torch.stack(terms).mean(0).tolist()
        has_critic = self.has_critic
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
        return prepare(self, self.net, rollout, weight, returns, values, advantage)
