"""What is known about environments: of a running one, and of the families that ids belong to.

`EnvSpec` travels with every vector env as `env.spec`. `FAMILIES` has the facts about suites with an
engine of their own; no other module decides anything by the prefix of an id.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gymnasium_solver.config.code import import_code
from gymnasium_solver.config.env_ids import C_ENV

if TYPE_CHECKING:
    from gymnasium_solver.envs.wrappers.wrapping import Named

EvalEnvs = Literal["array", "many", "as_training", "one"]
# Gymnasium's NumPy CartPole against EnvPool's, us a step of 1 / 8 / 64 / 1024 envs on two cores:
# 44 / 43 / 49 / 111 against 27 / 46 / 118 / 1500. It also saves the 1.5 s that EnvPool takes to
# import. A single env is fastest without either, at 20 us.
VECTOR_IS_FASTEST = ("CartPole-v0", "CartPole-v1")
# Gymnasium's classes stepped in C (engines/c/classics.py) against EnvPool, us a step of 16 envs:
# Acrobot 26 against 108, MountainCar 21 against 95. In Python they would be slower than EnvPool.
C_IS_FASTEST = ("Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
# Environments that EnvPool steps otherwise than Gymnasium, and how (seen with EnvPool 1.2.5).
POOL_DIFFERS = {
    "Pendulum-v1": "EnvPool's turns by its speed before it is limited to 8, Gymnasium's after it"
}
# The limit of an environment that is registered without one. Random actions may end it soon, yet a
# policy that repeats a move without effect would never be scored.
UNLIMITED_STEPS = 10_000
# How long vectorization_mode async waits for an environment, unless set otherwise.
ANSWER_WITHIN_S = 300.0


class Unsupported(Exception):
    """An engine cannot make this env with these env_kwargs; the message says why."""


class UnknownId(Unsupported):
    """An engine has no env of this id."""


@dataclass(frozen=True)
class EnvRequest:
    """What an engine is to make."""

    env_id: str
    n_envs: int
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    mode: str = "auto"  # value of vectorization_mode
    render_mode: str | None = None  # rgb_array, where `render` must work
    timeout_s: float | None = ANSWER_WITHIN_S  # how long `async` waits for an answer
    max_episode_steps: int | None = None
    frame_skip: tuple[int, int] | None = None  # fewest and most frames that an action is held for
    draws: bool = False  # the observations are rendered frames
    singles: "tuple[Named, ...]" = ()  # wrappers around each environment by itself, innermost first


@dataclass(frozen=True)
class Family:
    """Environments of one id prefix that an engine of their own steps."""

    prefix: str
    maker: str  # module:name, in this package, of a function or class: EnvRequest -> VectorEnv
    modes: tuple[str, ...] = ("auto", "vector")  # values of vectorization_mode
    has_frame_options: bool = False
    """Whether the env itself has frame_stack, frame_skip, grayscale_obs and resize_obs."""
    holds_actions: bool = False
    """Whether the maker holds an action for a fixed number of frames (`EnvRequest.frame_skip`)."""
    eval_envs: EvalEnvs = "many"


_ATARI_MODES = ("auto", "envpool", "vector")
FAMILIES = (
    Family("ALE/", "suites.atari:make_atari", _ATARI_MODES, has_frame_options=True),
    Family("Bandit-", "suites.own:make_bandit"),
    Family("Bandit/", "suites.own:make_bandit"),
    Family("Memory/", "suites.own:make_memory"),
    Family("Probe/", "suites.probes:make_probe"),
    Family(
        "VizDoom-",
        "suites.vizdoom:VizDoomEngine",
        has_frame_options=True,
        eval_envs="as_training",
    ),
    Family("Retro/", "suites.retro:RetroEngine", has_frame_options=True, eval_envs="one"),
    Family("Brax/", "engines.jax:make_brax", holds_actions=True),
    Family("Gymnax/", "engines.jax:make_gymnax", holds_actions=True),
    Family(C_ENV, "engines.c.engine:CEngine", eval_envs="array"),
    Family("Torch/", "engines.device:make_torch", eval_envs="array"),
)


def family_of(env_id: str) -> Family | None:
    """The family that steps an id, or None for ids of Gymnasium and EnvPool."""
    return next((family for family in FAMILIES if env_id.startswith(family.prefix)), None)


def eval_envs(env_id: str, vectorization_mode: str) -> EvalEnvs:
    """How many copies an evaluation may step at once. `array`: all copies are one array, so a large
    batch costs little. `many`: copies share threads or one process. `as_training`: each copy is a
    process, so no more than training has. `one`: each copy is an emulator."""
    family = family_of(env_id)
    if family is not None:
        return family.eval_envs
    if vectorization_mode == "async":
        return "as_training"
    in_numpy = env_id in VECTOR_IS_FASTEST and vectorization_mode in ("auto", "vector")
    return "array" if in_numpy else "many"


def closes_between_evals(env_id: str) -> bool:
    """Whether evaluation copies are too heavy to be kept open during training."""
    return eval_envs(env_id, "auto") == "one"


@dataclass(frozen=True)
class EnvSpec:
    """Facts about a vector env that do not change while it runs."""

    env_id: str
    engine: str  # which engine steps it: envpool, vector, sync, async, c, or own
    engine_reason: str  # one line for the user: why this engine was taken
    max_episode_steps: int | None = None
    """The time limit in force, an override included; None = episodes have no limit."""
    reward_threshold: float | None = None
    """Mean episode return at which the env counts as solved, as registered; None = undefined."""
    suite: str = "other"
    """classic_control, toy_text, box2d, mujoco, atari, bandit, memory, probe, ..., or other."""
    protocol: dict[str, Any] = field(default_factory=dict)
    """What a score depends on, in suites that can be set up in more than one way (Atari)."""
    notes: tuple[str, ...] = ()
    """What the user should know before training, one line each (parts that are left out)."""
    frame_skip: tuple[int, int] | None = None
    """Fewest and most frames of an action, if the time limit counts frames."""
    tasks: "tuple[TaskFacts, ...]" = ()
    """The tasks that share the rows, in their order (envs/joined.py); () for a single one."""

    @property
    def most_decisions(self) -> int | None:
        """Actions of an episode up to the time limit, on average if their length is drawn."""
        if self.max_episode_steps is None or self.frame_skip is None:
            return self.max_episode_steps
        return math.ceil(2 * self.max_episode_steps / sum(self.frame_skip))


@dataclass(frozen=True)
class TaskFacts:
    name: str
    threshold: float | None  # mean return at which the task counts as solved; None = undefined


def task_sizes(n_tasks: int, n_envs: int) -> list[int]:
    """Rows of each task; the numbers differ by at most one."""
    return [n_envs // n_tasks + (i < n_envs % n_tasks) for i in range(n_tasks)]


def task_rows(n_tasks: int, n_envs: int) -> list[int]:
    """The number of the task of each row."""
    return [i for i, size in enumerate(task_sizes(n_tasks, n_envs)) for _ in range(size)]


def registry_entry(env_id: str) -> Any | None:
    """Gymnasium's own record of an id, or None. `module:Name-v0` imports the module first."""
    import gymnasium

    module, _, name = env_id.rpartition(":")
    if env_id.startswith(C_ENV) or "/" in module:  # Torch/module:Class is not in its registry
        return None
    if module:
        from gymnasium_solver.envs.env_bugs import explained

        with explained(f"{env_id}: cannot import {module!r}:"):  # it may need a display, a licence
            import_code(module)
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
