"""Builds the Gymnasium env in which a run's agent acts as it did in training: `gs.make_env`.

It is Gymnasium's own environment wherever there is one, whatever engine the run was trained on: it
can be drawn in a window, and other Gymnasium wrappers can be put around it.
"""

import warnings
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import BatchEnv, SingleEnv
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.spec import family_of, registry_entry
from gymnasium_solver.envs.treatment import Treatment, layout, treatment_of
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.agents import run_treatment
from gymnasium_solver.training.targets import Found

PlayEnv = gymnasium.Env | gymnasium.vector.VectorEnv


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
    env, note = _build(config, n_envs or 1, draws, expected, _trained_on(found))
    if note:
        warnings.warn(note, stacklevel=3)
    treatment = treatment_of(env, config)
    fps = frames_per_second(config.env_id) if draws else None
    if n_envs is not None:
        return BatchEnv(env, treatment, seed=seed, render_mode=draws, fps=fps)
    single = SingleEnv(env, treatment, seed=seed, render_mode=draws, fps=fps)
    return gymnasium.wrappers.HumanRendering(single) if render_mode == "human" else single


def _trained_on(found: Found) -> str | None:
    """The engine that the run was trained on."""
    return None if found.run is None else found.run.meta().get("engine")


def _build(
    config: Config,
    n_envs: int,
    render_mode: str | None,
    expected: Treatment | None,
    trained_on: str | None,
) -> tuple[VectorEnv, str | None]:
    """The env, and what the user should know about it."""
    if family_of(config.env_id) is not None or not _has_single_env(config.env_id):
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


def _has_single_env(env_id: str) -> bool:
    entry = registry_entry(env_id)
    return entry is not None and entry.entry_point is not None


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
