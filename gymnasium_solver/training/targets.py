"""What a user names in Python: a run, a checkpoint, a config or an agent.

found = find_target("@last/@best", root)      # or a Run, a Config, "CartPole-v1:ppo", an agent
found.config, found.run
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.blocks import EnvFields
from gymnasium_solver.config.find import SUFFIXES
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError, GsolveError, RunError, TrustError
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.training.prepare import build_config, load_config

Target = Run | Config | str | Agent
# Fields that an evaluation or a made environment reads; all others belong to training.
ENV_FIELDS = (
    *(name for name in EnvFields.model_fields if name != "env_boundary_steps"),
    *("max_episode_steps", "spec"),
)
EVAL_FIELDS = (*ENV_FIELDS, "n_eval_envs", "device", "n_threads")


@dataclass(frozen=True)
class Found:
    """What a target means."""

    config: Config
    run: Run | None = None
    checkpoint: Path | None = None
    """Folder of the checkpoint."""
    label: str = ""
    """The checkpoint as the user named it: @best, @last or the env steps."""
    agent: Agent | None = None
    changed: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    """Fields that differ from the run's config: before and now."""


def find_target(target: Target, root: Path, *, trust: bool = False) -> Found:
    """The config, and the run and checkpoint where there is one; GsolveError if there is none.
    `trust`: also import code that the config of a run made elsewhere names."""
    if isinstance(target, Config):
        return Found(target)
    if isinstance(target, str | Run):
        return _named(target, root, trust)
    if hasattr(target, "policy") and hasattr(target, "config"):
        return _of_agent(target)
    raise ConfigError(
        f"expected a run, a config, their names or an agent, got {type(target).__name__}: "
        f"{str(target)[:60]}"
    )


def _of_agent(agent: Agent) -> Found:
    path = agent.policy.loaded_from
    if path is None:
        return Found(agent.config, agent=agent)
    path = path.resolve()
    return Found(agent.config, Run(path.parents[1]), path, path.name, agent)


def find_run(ref: str | Run, root: Path, *, trust: bool = False) -> Found:
    """The run and checkpoint of a reference such as @last/@best."""
    found = resolve_checkpoint(ref, root)
    config = load_config(str(found.run.config_path), trust=trust)
    return Found(config, found.run, found.path, found.label)


def _named(target: str | Run, root: Path, trust: bool) -> Found:
    if isinstance(target, str) and _is_config_name(target):
        return Found(load_config(target, trust=trust))
    try:
        return find_run(target, root, trust=trust)
    except TrustError:
        raise
    except RunError as no_run:
        if not isinstance(target, str) or "/" in target or target.startswith("@"):
            raise
        try:
            return Found(load_config(target))
        except GsolveError:
            raise no_run from None


def _is_config_name(target: str) -> bool:
    """`CartPole-v1:ppo` or a file; ids of runs have neither a colon nor a suffix."""
    if target.startswith("hub:"):
        return False
    return ":" in target or Path(target).suffix in SUFFIXES


def with_fields(found: Found, fields: Mapping[str, Any], allowed: tuple[str, ...]) -> Found:
    """The target with some fields of its config changed; ConfigError for a field of training."""
    if not fields:
        return found
    names = {key.partition(".")[0] for key in fields}
    for name in sorted(names):
        if name not in allowed:
            known = type(found.config).model_fields
            why = "has no effect outside training" if name in known else "is not a field"
            hint = did_you_mean(name, allowed) or f"Fields with an effect: {', '.join(allowed)}."
            raise ConfigError(f"{name} {why}. {hint}")
    before = found.config
    after = build_config(apply_overrides(config_dict(before), fields))
    changed = {
        name: (getattr(before, name), getattr(after, name))
        for name in type(after).model_fields
        if getattr(before, name) != getattr(after, name)
    }
    return dataclasses.replace(found, config=after, changed=changed)
