"""The settings of random actions."""

from gymnasium_solver.config.schema import Config, Count


class RandomConfig(Config):
    n_steps: Count = 128
    """Steps per environment in one epoch, the unit of reports and evaluations."""
    max_env_steps: Count | None = 10_000
    """Budget in env steps, summed over all environments. null: no limit, `max_epochs` decides."""
