"""Whether a rollout fits into memory. Checked before the networks are built, which for very large
observations takes minutes."""

from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_kind

ADVICE = "Reduce n_steps or n_envs, or make the observations smaller (resize_obs, obs_keys)."


def check_rollout_fits(config: Config, observation_space: Any, action_space: Any) -> None:
    """Raise ConfigError if the rollout of a config does not fit."""
    actions = action_kind(action_space)
    rows = config.rollout_rows
    estimate = Rollout.estimate_bytes(rows, config.n_envs, observation_space, actions)
    # The update copies the valid rows, so they exist twice for a while.
    what = f"{config.env_id}: the rollout of {rows:,} rows and {config.n_envs:,} envs"
    check_fits(2 * estimate, available_memory_bytes(), what, ADVICE)
