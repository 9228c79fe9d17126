"""The settings of random actions."""

from typing import Any, ClassVar

from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.types import Count


class RandomConfig(Config):
    defaults: ClassVar[dict[str, Any]] = {"max_env_steps": 10_000}

    n_steps: Count = 128
    """Steps per environment in one epoch, the unit of reports and evaluations."""
