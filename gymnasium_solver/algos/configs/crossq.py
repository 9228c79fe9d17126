"""The settings of CrossQ."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from gymnasium_solver.algos.configs.shared import SoftConfig
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.types import Count, Float, HiddenDims, NonNegativeInt


class CrossQConfig(SoftConfig):
    defaults: ClassVar[dict[str, Any]] = {"policy_lr": Schedule.constant(1e-3), "adam_beta1": 0.5}

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
