"""What is known about an environment before it runs: engine, time limit, solved threshold, suite.

`EnvSpec` travels with every vector env as `env.spec`; `describe` builds it from Gymnasium's registry.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EnvSpec:
    """Facts about a vector env that do not change while it runs."""

    env_id: str
    engine: str
    """Which engine steps it: envpool, vector, sync, async, or own."""
    engine_reason: str
    """One line for the user: why this engine was taken."""
    max_episode_steps: int | None
    """The time limit in force, an override included; None = episodes have no limit."""
    reward_threshold: float | None
    """Mean episode return at which the env counts as solved, as registered; None = not defined."""
    suite: str
    """classic_control, toy_text, box2d, mujoco, bandit, probe, ..., or other."""


def registry_entry(env_id: str) -> Any | None:
    """Gymnasium's own record of an id (`module:Name-v0` imports the module first), or None."""
    import gymnasium

    if ":" in env_id:
        try:
            return gymnasium.spec(env_id) if env_id in gymnasium.registry else _import_entry(env_id)
        except gymnasium.error.Error:
            return None
    return gymnasium.registry.get(env_id)


def _import_entry(env_id: str) -> Any | None:
    import importlib

    import gymnasium

    module, _, name = env_id.partition(":")
    importlib.import_module(module)
    return gymnasium.registry.get(name)


def suite_of(entry_point: Any) -> str:
    """The family an entry point belongs to: `gymnasium.envs.mujoco.ant_v5:AntEnv` -> mujoco."""
    parts = entry_point.split(":")[0].split(".") if isinstance(entry_point, str) else []
    if parts[:2] == ["gymnasium", "envs"] and len(parts) > 2:
        return str(parts[2])
    if parts[:1] == ["envpool"] and len(parts) > 1:
        # envpool.mujoco.gym are Gymnasium's MuJoCo tasks; envpool.mujoco.dmc and others are not.
        return str(parts[2] if len(parts) > 2 and parts[2] != "gym" else parts[1])
    return "other"
