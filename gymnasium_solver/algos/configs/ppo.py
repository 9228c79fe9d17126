"""The settings of PPO."""

from typing import Annotated, Literal

from pydantic import Field

from gymnasium_solver.algos.configs.shared import SelfImitationFields
from gymnasium_solver.config.learner_blocks import (
    ActorCriticFields,
    CriticKeysFields,
    MinibatchFields,
)
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, changing
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import Count, Float

Scaling = Literal["rollout", "batch", "percentile", "symlog", "off"]


class PPOConfig(
    SelfImitationFields, CriticKeysFields, ActorCriticFields, MinibatchFields, LearnerConfig
):
    n_steps: Annotated[Count, searched("pow2:32..2048", main=True)] = 2048
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    More: better advantage estimates, fewer updates."""
    n_epochs: Annotated[int, changing(ge=1, whole=True), searched("int:3..20", main=True)] = 10
    """Passes over each rollout. More: better use of the data, until the policy moves too far."""
    gae_lambda: Annotated[float, changing(ge=0, le=1), searched("logit:0.8..0.995", main=True)] = (
        0.95
    )
    """Lambda of GAE: 1 uses full returns (high variance), 0 only the critic (biased)."""
    clip_range: Annotated[PositiveSchedule, searched("0.1..0.4", main=True)] = Schedule.constant(
        0.2
    )
    """Clip the probability ratio to 1 +- this value. Higher: larger, riskier updates."""
    clip_range_vf: PositiveSchedule | None = None
    """Clip the change of the value to +- this, in units of the return. null: no clipping."""
    target_kl: Annotated[Annotated[float, changing(gt=0)] | None, searched("log:0.003..0.1")] = None
    """Stop an update early once the KL divergence exceeds 1.5 times this. null: never."""
    normalize_advantages: Annotated[Scaling, live(), searched("rollout,batch")] = "rollout"
    """Standardise advantages over the rollout, or per minibatch (batch). percentile: divide by
    the running range of the returns, but not by less than 1. symlog: sign(A) log(1 + |A|). off:
    unchanged."""
    dual_clip: Annotated[Annotated[Float, Field(gt=1)] | None, live()] = None
    """Bound the loss of a bad action whose probability has grown: at most this factor times its
    advantage (Ye et al. 2020), usually 3. Lower: safer with stale data. null: no bound."""
    recompute_advantages: Annotated[bool, live()] = False
    """Compute values and advantages anew before each pass over the rollout, with the critic as it
    is by then. Better targets, slower."""
    normalize_values: bool = False
    """PopArt: the critic learns returns scaled by their running mean and deviation; its values stay
    exactly the same when these change. For returns of unknown or changing size."""
    adaptive_kl: Annotated[Annotated[Float, Field(gt=0)] | None, live()] = None
    """Adapt the learning rate to this KL divergence of an update: a third less after an update
    above twice this, half as much more after one below half of it. It multiplies policy_lr by at
    most 100 and at least 1/100. null: off."""
