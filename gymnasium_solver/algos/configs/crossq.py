"""The settings of CrossQ."""

from typing import Annotated

from pydantic import Field

from gymnasium_solver.algos.configs.shared import (
    SoftConfig,
)
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule
from gymnasium_solver.config.schema import Count, Float, NonNegativeInt
from gymnasium_solver.config.types import HiddenDims


class CrossQConfig(SoftConfig):
    policy_lr: PositiveSchedule = Schedule.constant(1e-3)
    """Learning rate. Higher: faster learning, until it becomes unstable."""
    adam_beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.5
    """Decay of Adam's mean of the gradients. Higher: smoother, slower to turn."""
    critic_hidden_dims: HiddenDims = (1024, 1024)
    """Width of each hidden layer of the critics. Wider: fewer steps needed, each slower."""
    policy_delay: Annotated[Count, live()] = 3
    """Critic updates per update of the actor and the temperature. More: more stable, faster."""
    renorm_warmup: Annotated[NonNegativeInt, live()] = 100_000
    """Updates with plain batch normalisation, before batch renormalisation sets in."""
    renorm_r_max: Annotated[Float, Field(ge=1), live()] = 3.0
    """Largest correction r of a batch's scale. 1: no correction."""
    renorm_d_max: Annotated[Float, Field(ge=0), live()] = 5.0
    """Largest correction d of a batch's mean, in standard deviations. 0: no correction."""
