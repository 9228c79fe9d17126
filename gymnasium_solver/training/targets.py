"""What a user names in Python (a run, a checkpoint, a config or an agent), and its environment.

    found = find_target("@last/@best", root)      # or a Run, a Config, "CartPole-v1:ppo", an agent
    found.config, found.run
    env = play_env(found, render_mode="human")    # gs.make_env

`play_env` builds the Gymnasium env in which the agent acts as it did in training. It is Gymnasium's
own environment wherever there is one, whatever engine the run was trained on: it can be drawn in a
window, and other Gymnasium wrappers can be put around it.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.blocks import EnvFields
from gymnasium_solver.config.find import SUFFIXES
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import BatchEnv, SingleEnv, Treatment, treatment_of
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.spec import family_of, registry_entry
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError, GsolveError, RunError, TrustError
from gymnasium_solver.runs.query import acts_greedily
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.observations import layout
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.training.agents import run_treatment
from gymnasium_solver.training.prepare import build_config, load_config

Target = Run | Config | str | Agent
PlayEnv = gymnasium.Env | gymnasium.vector.VectorEnv
# Fields that an evaluation or a made environment reads; all others belong to training.
ENV_FIELDS = (
    *(name for name in EnvFields.model_fields if name != "env_boundary_steps"),
    *("max_episode_steps", "spec"),
)
EVAL_FIELDS = (*ENV_FIELDS, "n_eval_envs", "eval_frame_skip", "device", "n_threads")


@dataclass(frozen=True)
class Found:
    """What a target means."""

    config: Config
    run: Run | None = None
    checkpoint: Path | None = None  # folder of the checkpoint
    label: str = ""  # the checkpoint as the user named it: @best, @last or the env steps
    agent: Agent | None = None
    changed: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    """Fields that differ from the run's config: before and now."""

    def is_greedy(self, given: bool | None = None) -> bool:
        """By default as the run is judged."""
        if given is not None:
            return given
        if self.run is None:
            return self.config.eval_deterministic is not False
        return acts_greedily(self.run)


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
    return ":" in target or Path(target).suffix in (*SUFFIXES, ".c")


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
    if "frame_skip" in fields and "eval_frame_skip" not in fields:
        fields = {**fields, "eval_frame_skip": None}  # this one is meant, here and now
    after = build_config(apply_overrides(config_dict(before), fields))
    changed = {
        name: (getattr(before, name), getattr(after, name))
        for name in type(after).model_fields
        if getattr(before, name) != getattr(after, name)
    }
    return dataclasses.replace(found, config=after, changed=changed)


# -- the environment to play in ---------------------------------------------------------------


def play_env(
    found: Found,
    *,
    n_envs: int | None = None,
    render_mode: str | None = None,
    seed: int | None = None,
) -> PlayEnv:
    """A single env, or a vector env of `n_envs` copies."""
    config = found.config
    if render_mode not in (None, "rgb_array", "human"):
        raise EnvError(f"render_mode must be rgb_array, human or None, got {render_mode!r}.")
    if render_mode == "human" and n_envs is not None:
        raise EnvError("render_mode='human' shows a single environment: leave n_envs out.")
    draws = None if render_mode is None else "rgb_array"
    expected = None if found.run is None else run_treatment(found.run, config)
    trained_on = None if found.run is None else found.run.meta().get("engine")
    env, note = _build(config, n_envs or 1, draws, expected, trained_on)
    if note:
        warnings.warn(note, stacklevel=3)
    treatment = treatment_of(env, config)
    fps = frames_per_second(config.env_id) if draws else None
    if n_envs is not None:
        return BatchEnv(env, treatment, seed=seed, render_mode=draws, fps=fps)
    single = SingleEnv(env, treatment, seed=seed, render_mode=draws, fps=fps)
    return gymnasium.wrappers.HumanRendering(single) if render_mode == "human" else single


def _build(
    config: Config,
    n_envs: int,
    render_mode: str | None,
    expected: Treatment | None,
    trained_on: str | None,
) -> tuple[VectorEnv, str | None]:
    """The env, and what the user should know about it. `trained_on`: the engine of the run."""
    entry = registry_entry(config.env_id)
    if family_of(config.env_id) is not None or entry is None or entry.entry_point is None:
        return env_from_config(config, n_envs, render_mode), None
    try:
        env = env_from_config(config.replace(vectorization_mode="sync"), n_envs, render_mode)
        _check_layout(env, config, expected)
    except EnvError as error:
        if trained_on in (None, "sync", "async"):
            raise
        env = env_from_config(config, n_envs, render_mode)
        return env, f"make_env: stepped by {env.spec.engine}, as in training: {error}"
    if trained_on != "envpool":
        return env, None
    return env, (
        f"make_env: the run was trained on EnvPool's {config.env_id}; this is Gymnasium's. The two "
        "are the same task in other code, so single episodes differ."
    )


def _check_layout(env: VectorEnv, config: Config, expected: Treatment | None) -> None:
    """Two engines' observations of a task may differ in shape: then the run's own is taken."""
    if expected is None:
        return
    got = treatment_of(env, config).space
    if layout(got) != layout(expected.space):
        env.close()
        raise EnvError(f"Gymnasium's {config.env_id} has {got}; the run has {expected.space}.")


def env_metadata(env_id: str) -> dict[str, Any]:
    """What the environment's class declares: render modes, frames per second."""
    entry = None if family_of(env_id) else registry_entry(env_id)
    if entry is None or entry.entry_point is None:
        return {}
    point = entry.entry_point
    try:
        creator = load_env_creator(point) if isinstance(point, str) else point
    except (ImportError, gymnasium.error.Error):  # its package is not installed
        return {}
    metadata = getattr(creator, "metadata", {})
    return metadata if isinstance(metadata, dict) else {}


def frames_per_second(env_id: str) -> int | None:
    fps = env_metadata(env_id).get("render_fps")
    return fps if isinstance(fps, int) else None
