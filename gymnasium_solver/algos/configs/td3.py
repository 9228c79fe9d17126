"""The settings of TD3."""

from typing import Annotated

from gymnasium_solver.algos.configs.shared import DeterministicConfig
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.schedule import changing
from gymnasium_solver.config.types import Count


class TD3Config(DeterministicConfig):
    policy_delay: Annotated[Count, live()] = 2
    """Critic updates per update of the actor and the targets. More: more stable, slower."""
    target_noise: Annotated[float, changing(ge=0)] = 0.2
    """Standard deviation of the noise on the target actor's actions. Higher: smoother values."""
    target_noise_clip: Annotated[float, changing(ge=0)] = 0.5
    """Clip that noise to +- this value."""
    n_critics: Count = 2
    """Number of critics; the lowest value is used. More: less overestimation, slower."""
