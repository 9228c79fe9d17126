"""The settings of SAC."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gymnasium_solver.algos.configs.shared import BatchNormFields, SoftConfig
from gymnasium_solver.config.learner_blocks import SdeFields
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule, changing
from gymnasium_solver.config.types import Count, Float


class SACConfig(SdeFields, BatchNormFields, SoftConfig):
    defaults: ClassVar[dict[str, Any]] = {"sde_log_std_init": -3.0}

    tau: Annotated[float, changing(gt=0, le=1), searched("log:0.001..0.05", main=True)] = 0.005
    """Polyak factor of the target critics at every update. Higher: faster, less stable."""
    policy_delay: Annotated[Count, live()] = 1
    """Critic updates per update of the actor and the temperature. More: more stable, faster."""
    actor_first: bool = False
    """Update the actor and the temperature before the critics, which then learn from the new ones
    (SimbaV2, FlashSAC)."""
    spectral_norm: bool = False
    """Spectral normalisation of the critics' weights: smoother values, less capacity."""
    log_std_bound: Literal["clamp", "tanh"] = "clamp"
    """Box actions: how log standard deviations are bounded. clamp: to [-20, 2]. tanh: smoothly to
    [-10, 2]."""
    target_std: Annotated[Float, Field(gt=0)] | None = None
    """Box actions: target_entropy is that of a Gaussian with this deviation in every component,
    where 1 is half the range of an action. 0.15: FlashSAC; 0.147 is half of auto. Higher: explores
    more."""
    noise_repeat: Count = 1
    """Box actions: most steps for which exploration noise is kept; it is kept for n steps with a
    probability proportional to 1 / n^2 (FlashSAC: 16). More: longer movements in one direction."""
    entropy_penalty_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Discrete actions: penalty on sudden changes of the entropy. Higher: more stable, slower."""

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.sde and (self.noise_correlation or self.noise_repeat > 1):
            raise ValueError(
                "sde has lasting noise of its own: remove noise_correlation and noise_repeat"
            )
        if self.noise_correlation and self.noise_repeat > 1:
            raise ValueError("noise_repeat excludes noise_correlation: remove one of them")
        if self.target_std is not None and self.target_entropy != "auto":
            raise ValueError("target_std sets target_entropy: remove one of them")
        return self

    def without_memory(self) -> dict[str, bool]:
        return super().without_memory() | {"sde (use noise_correlation)": self.sde}

    @property
    def target_entropy_by_std(self) -> float | None:
        """Target entropy of one component of a Box action."""
        if self.target_std is None:
            return None
        return 0.5 * math.log(2 * math.pi * math.e * self.target_std**2)
