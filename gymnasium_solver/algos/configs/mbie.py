"""The settings of MBIE-EB."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.types import Count, Float, PositiveFloat


class MBIEConfig(Config):
    defaults: ClassVar[dict[str, Any]] = {"eval_freq_epochs": 25}

    n_steps: Count = 16
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps, and values are
    computed after it. Fewer: what was just seen is used sooner, but computing takes more time."""
    gamma: Annotated[Float, Field(ge=0, lt=1), live(), searched("logit:0.9..0.9995", main=True)] = (
        0.99
    )
    """Discount factor, below 1. Higher: looks further ahead, and values take longer to compute."""
    bonus: Annotated[NonNegativeSchedule, searched("log:0.01..1", main=True)] = Schedule.parse(
        {"start": 0.3, "end": 0.0, "to": 0.5}
    )
    """What exploration adds to a reward: this times the range of the rewards seen, divided by the
    square root of the visits. Higher: tries again what looked bad by chance. 0: no exploration."""
    optimism: Annotated[PositiveFloat, live()] = 10.0
    """An action that was never tried in a state counts as if it paid this many times the largest
    reward seen, at every step from there on. Higher: small rewards distract less from it."""
    n_sweeps: Annotated[Count, live(), searched("pow2:32..512")] = 200
    """Sweeps of value iteration after each rollout, at most; it ends once values hardly change.
    Fewer: faster, with values that lag behind."""
