"""What is known about an environment before it runs: engine, time limit, solved threshold, suite.

`EnvSpec` travels with every vector env as `env.spec`.
"""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from gymnasium_solver.errors import EnvError

EvalEnvs = Literal["array", "many", "as_training", "one"]


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
    """Mean episode return at which the env counts as solved, as registered; None = undefined."""
    suite: str
    """classic_control, toy_text, box2d, mujoco, atari, bandit, probe, ..., or other."""
    protocol: dict[str, Any] = field(default_factory=dict)
    """What a score depends on, in suites that can be set up in more than one way (Atari)."""
    eval_envs: EvalEnvs = "many"
    """How many copies an evaluation may step at once: `array`: all copies are one array, so a large
    batch costs little; `many`: copies share threads or one process; `as_training`: each copy is a
    process, so no more than training has; `one`: each copy is an emulator."""
    closes_between_evals: bool = False
    """Whether evaluation copies are too heavy to be kept open while training goes on."""
    notes: tuple[str, ...] = ()
    """What the user should know before training, one line each (parts that are left out)."""


def registry_entry(env_id: str) -> Any | None:
    """Gymnasium's own record of an id, or None. `module:Name-v0` imports the module first."""
    import gymnasium

    module, _, name = env_id.rpartition(":")
    if module:
        try:
            import_module(module)
        except ImportError as error:
            raise EnvError(f"{env_id}: cannot import {module!r}: {error}") from error
    return gymnasium.registry.get(name)


def suite_of(entry_point: Any) -> str:
    """The family an entry point belongs to: `gymnasium.envs.mujoco.ant_v5:AntEnv` -> mujoco."""
    parts = entry_point.split(":")[0].split(".") if isinstance(entry_point, str) else []
    if parts[:2] == ["gymnasium", "envs"] and len(parts) > 2:
        return str(parts[2])
    if parts[:1] == ["envpool"] and len(parts) > 1:
        # envpool.mujoco.gym holds Gymnasium's MuJoCo tasks; envpool.mujoco.dmc and others do not.
        return str(parts[2] if len(parts) > 2 and parts[2] != "gym" else parts[1])
    return "minigrid" if parts[:1] == ["minigrid"] else "other"
