"""The settings of REINFORCE."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gymnasium_solver.config.learner_blocks import ActorCriticFields, MinibatchFields
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, changing
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import BatchSize, Count, Float


class ReinforceConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {"ent_coef": Schedule.constant(0.01)}

    n_steps: Annotated[Count, searched("pow2:128..4096", main=True)] = 2048
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    Should hold several whole episodes."""
    batch_size: Annotated[BatchSize, searched("0.25,0.5,1.0")] = 1.0  # type: ignore[assignment]
    """Samples per gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step per rollout,
    the textbook policy gradient."""
    policy_lr: Annotated[PositiveSchedule, searched("log:1e-4..0.1", main=True)] = (
        Schedule.constant(1e-2)
    )
    """Learning rate. Higher: faster, until it becomes unstable."""
    returns_type: Annotated[Literal["mc:rtg", "mc:episode"], live()] = "mc:rtg"
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
    normalize_returns: Annotated[bool, live()] = True
    """Standardise the weights over the rollout. Off: the textbook gradient, sensitive to scale."""
    elite: Annotated[Annotated[Float, Field(gt=0, le=1)] | None, live()] = None
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
