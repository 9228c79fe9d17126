"""The environments that configs exist for, read from files alone: nothing heavy is imported.

    for env in list_environments("mujoco"): print(env.env_id, env.actions, env.threshold)

Spaces come from the `spec` blocks, the engine from the recorded random baseline.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from gymnasium_solver.config.env_ids import file_stem
from gymnasium_solver.config.find import ConfigEntry, find_configs, read_config_file
from gymnasium_solver.config.spec import ActionSpec, ObservationView, Spec, read_spec
from gymnasium_solver.envs.baselines import random_baseline
from gymnasium_solver.errors import ConfigError

# Suites that need a package of their own: its module, and the extra that installs it.
SUITE_PACKAGES = {
    "atari": ("ale_py", "atari"),
    "vizdoom": ("vizdoom", "vizdoom"),
    "retro": ("retro", "retro"),
    "brax": ("brax", "jax"),
    "gymnax": ("gymnax", "jax"),
}


@dataclass(frozen=True)
class EnvEntry:
    """One environment and what is shipped for it."""

    env_id: str
    suite: str
    description: str
    observations: str  # its space in short, or - if the spec does not give it
    actions: str
    threshold: float | None
    engine: str | None  # what `auto` takes, as recorded; None where nothing was
    random: float | None  # mean return of random actions
    algos: list[str]
    configs: list[str]  # what gsolve train takes
    extra: str | None  # the extra that has to be installed first; None where all is there
    spec: Spec = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON; of the spec only what was given."""
        fields = {name: value for name, value in vars(self).items() if name != "spec"}
        return fields | {"spec": self.spec.model_dump(mode="json", exclude_defaults=True)}


def list_environments(pattern: str | None = None) -> list[EnvEntry]:
    """All environments, or those of configs that match (name, suite or description)."""
    groups: dict[str, list[ConfigEntry]] = {}
    wanted = {entry.env_id for entry in find_configs(pattern)}
    for entry in find_configs():
        if entry.env_id in wanted and "<" not in entry.env_id:
            groups.setdefault(entry.env_id, []).append(entry)
    found = [_describe(env_id, entries) for env_id, entries in groups.items()]
    return sorted(found, key=lambda env: (env.suite, env.env_id))


def find_environment(env_id: str) -> EnvEntry | None:
    """The entry of exactly this id."""
    return next((env for env in list_environments() if env.env_id == env_id), None)


def _describe(env_id: str, entries: list[ConfigEntry]) -> EnvEntry:
    # The environment's own file first: others only vary its settings (ablations).
    stem = file_stem(env_id)
    ordered = sorted(entries, key=lambda entry: entry.path.stem != stem)
    first = ordered[0]
    spec, description = _read(first)
    baseline = random_baseline(env_id)
    module, extra = SUITE_PACKAGES.get(first.suite, ("sys", None))
    threshold = spec.threshold
    if threshold is None and baseline is not None and baseline.target_kind == "threshold":
        threshold = baseline.target
    return EnvEntry(
        env_id=env_id,
        suite=first.suite,
        description=description,
        observations=observation_text(spec.observation_space.view()),
        actions=action_text(spec.action_space),
        threshold=threshold,
        engine=None if baseline is None else baseline.engine,
        random=None if baseline is None else baseline.mean,
        algos=list(dict.fromkeys(entry.algo_id for entry in ordered)),
        configs=[entry.name for entry in ordered],
        extra=extra if find_spec(module) is None else None,
        spec=spec,
    )


def _read(entry: ConfigEntry) -> tuple[Spec, str]:
    """The spec of a config's file, and what the file says the environment is."""
    file = read_config_file(entry.path)
    block = file.base.get("spec") or file.section(entry.variant).get("spec") or {}
    try:
        spec = read_spec(block)
    except ConfigError:
        spec = Spec()  # loading a config of the file reports what is wrong with it
    return spec, str(file.base.get("description") or entry.description)


def action_text(stated: ActionSpec) -> str:
    """The action space in short: Discrete(4), Box(6), MultiBinary(8), or -."""
    if stated.multibinary:
        return f"MultiBinary({stated.multibinary})"
    if stated.multidiscrete:
        return f"MultiDiscrete({_sizes(stated.multidiscrete)})"
    n = stated.discrete or len(stated.labels)
    if stated.range is not None or stated.shape:
        return f"Box({_sizes(stated.shape) if stated.shape else n})"
    return f"Discrete({n})" if n else "-"


def observation_text(view: ObservationView) -> str:
    """The observation space in short: Box(17), Discrete(16), uint8 210×160×3, or -."""
    if view.n:
        return f"Discrete({view.n})"
    if view.shape and (len(view.shape) > 1 or not view.components):
        return f"{view.dtype or 'Box'} {_sizes(view.shape)}"
    if len(view.components) == 1 and isinstance(view.components[0].values, int):
        return f"Discrete({view.components[0].values})"
    return f"Box({view.size})" if view.components else "-"


def space_text(space: Any) -> str:
    """A real Gymnasium space in the same words."""
    kind = type(space).__name__
    if kind == "Discrete":
        return f"Discrete({space.n})"
    if kind == "MultiDiscrete":
        return f"MultiDiscrete({_sizes(space.nvec.flatten().tolist())})"
    if kind == "Box" and len(space.shape) > 1:
        return f"{space.dtype} {_sizes(space.shape)}"
    return f"{kind}({_sizes(space.shape)})" if getattr(space, "shape", None) else str(space)


def _sizes(shape: Iterable[Any]) -> str:
    return "×".join(str(size) for size in shape)
