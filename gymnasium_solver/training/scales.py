"""Decides `normalize_obs: auto` and `normalize_reward: auto` when a run starts.

    config, notes = settle_scales(config)

The rule is that of `gsolve doctor env` (envs/checks/scale.py): random steps of a few copies of the
environment, from a fixed seed. The decision is written into the run's config, so a resume and an
evaluation repeat it without looking again.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.envs.checks.scale import (
    N_ENVS,
    ROWS,
    record,
    why_normalize_obs,
    why_normalize_reward,
)
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.spec import eval_envs


def settle_scales(
    config: Config, source: Mapping[str, Any] | None = None
) -> tuple[Config, list[str]]:
    """The config with every `auto` decided, and a note for each setting that is switched on.

    `source`: fields of the run whose weights are taken over. They expect its normalisation.
    """
    if not isinstance(config, LearnerConfig):
        return config, []
    inherited = {name: source[name] for name in undecided(config) if source and name in source}
    config = config.replace(**inherited)
    if not undecided(config):
        return config, []
    n_envs = 1 if eval_envs(config.env_id, config.vectorization_mode) == "one" else N_ENVS
    env = env_from_config(config, n_envs)
    try:
        rollout, space = record(env, ROWS), env.observation_space
    finally:
        env.close()
    settled: dict[str, Any] = dict.fromkeys(undecided(config), False)
    notes = []
    for name, what, on, why in (
        ("normalize_obs", "observations", "rolling", why_normalize_obs(space, rollout)),
        ("normalize_reward", "rewards", True, why_normalize_reward(rollout)),
    ):
        if name in settled and why is not None:
            settled[name] = on
            notes.append(f"{name}: auto is {str(on).lower()} here, {what} are {why}")
    return config.replace(**settled), notes


def undecided(config: LearnerConfig) -> list[str]:
    """The settings that are still `auto`."""
    names = ("normalize_obs", "normalize_reward")
    return [name for name in names if getattr(config, name) == "auto"]
