"""The settings of SAC."""

from typing import Annotated, Self

from pydantic import model_validator

from gymnasium_solver.algos.configs.shared import SoftConfig
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule, changing
from gymnasium_solver.config.schema import Count, Float, SdeFields


class SACConfig(SdeFields, SoftConfig):
    tau: Annotated[float, changing(gt=0, le=1), searched("log:0.001..0.05", main=True)] = 0.005
    """Polyak factor of the target critics at every update. Higher: faster, less stable."""
    policy_delay: Annotated[Count, live()] = 1
    """Critic updates per update of the actor and the temperature. More: more stable, faster."""
    spectral_norm: bool = False
    """Spectral normalisation of the critics' weights: smoother values, less capacity."""
    entropy_penalty_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Discrete actions: penalty on sudden changes of the entropy. Higher: more stable, slower."""
    sde_log_std_init: Annotated[Float, searched("-4..0")] = -3.0
    """Initial log standard deviation of the entries of sde. The noise on an action is as many times
    larger as the features of the last hidden layer are long. Higher: more exploration."""

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.sde and self.noise_correlation:
            raise ValueError("sde has lasting noise of its own: remove noise_correlation")
        return self
