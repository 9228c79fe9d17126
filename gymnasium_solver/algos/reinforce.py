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
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.groups import elite_rows, leave_one_out
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.on_policy import (
    Prepared,
    gradient_details,
    prepare,
    scaled_losses,
)
from gymnasium_solver.algos.rollout_learner import RolloutLearner
from gymnasium_solver.config.schedule import (
    NonNegativeSchedule,
    PositiveSchedule,
    Schedule,
    changing,
)
from gymnasium_solver.config.schema import (
    ActorCriticFields,
    BatchSize,
    Count,
    Float,
    LearnerConfig,
    MinibatchFields,
)
from gymnasium_solver.config.search_range import searched
from gymnasium_solver.data.rollout import Rollout


class ReinforceConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
    n_steps: Annotated[Count, searched("pow2:128..4096", main=True)] = 2048
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    Should hold several whole episodes."""
    batch_size: Annotated[BatchSize, searched("0.25,0.5,1.0")] = 1.0  # type: ignore[assignment]
    """Samples per gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step per rollout,
    the textbook policy gradient."""
    policy_lr: Annotated[PositiveSchedule, searched("log:1e-4..0.1", main=True)] = (
        Schedule.constant(1e-2)
    )
    """Learning rate. Higher: faster learning, until it becomes unstable."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.01)
    """Weight of the entropy bonus. Higher: more exploration, slower convergence."""
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Weight of an action: the rewards that follow it, or those of its whole episode (more
    variance)."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """Weight actions by returns, or by returns minus a learned value (less variance)."""
    baseline: Literal["auto", "none", "mean", "value", "rloo"] = "auto"
    """What is subtracted from the returns. mean: their mean over the rollout (centring). value: a
    learned value. rloo: the mean return of the other environments of the group, which started from
    the same seed (leave one out). auto: value with policy_targets advantages, else none."""
    group_size: Annotated[Count, Field(ge=2)] = 4
    """Environments that start from one seed, with baseline rloo; n_envs is a multiple of it. All
    environments are then reset at the start of every rollout. Larger: a better baseline, fewer
    different starts."""
    normalize_returns: bool = True
    """Standardise the weights over the rollout. Off: the textbook gradient, sensitive to scale."""
    elite: Annotated[Float, Field(gt=0, le=1)] | None = None
    """Learn only from this share of the best episodes of a rollout, like the elites of the
    cross-entropy method. Weights are computed over all episodes first. Lower: greedier. null: from
    all of them."""
    n_epochs: Annotated[int, changing(ge=1, whole=True)] = 1
    """Passes over each rollout. More than one needs clip_range."""
    clip_range: PositiveSchedule | None = None
    """Clip the probability ratio to 1 +- this value, as PPO does (REINFORCE++), so that a rollout
    can be used more than once. null: the plain gradient."""

    @property
    def resolved_baseline(self) -> str:
        if self.baseline == "auto":
            return "value" if self.policy_targets == "advantages" else "none"
        return self.baseline

    @property
    def same_start_envs(self) -> int:
        """Environments that are reset with one seed, at the start of every rollout."""
        return self.group_size if self.baseline == "rloo" else 1

    @model_validator(mode="after")
    def _check_baseline(self) -> Self:
        if self.baseline in ("none", "mean", "rloo") and self.policy_targets == "advantages":
            raise ValueError(
                f"policy_targets: advantages means a learned value, but baseline is "
                f"{self.baseline}: remove policy_targets"
            )
        if self.baseline == "rloo" and self.n_envs % self.group_size:
            raise ValueError(
                f"n_envs {self.n_envs} is not a multiple of group_size {self.group_size}, which "
                "baseline: rloo needs"
            )
        passes = self.n_epochs.values if isinstance(self.n_epochs, Schedule) else (self.n_epochs,)
        if self.clip_range is None and max(passes) > 1:
            raise ValueError(
                f"n_epochs {max(passes)} without clip_range: the plain gradient is right only "
                "for the first pass; set clip_range: 0.2, or n_epochs: 1"
            )
        return self


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
