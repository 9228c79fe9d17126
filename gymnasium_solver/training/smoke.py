"""Smoke test of a config: random actions in its environment, then two short epochs of training.

    result = smoke("CartPole-v1:ppo")         # {"status": "pass", "env_steps_per_s": ..., ...}

It covers the engine, wrappers, normalisation, network and schedules. `gsolve smoke` runs it for all
configs, and a test runs it for all configs of this package.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.errors import GsolveError, MissingError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.observations import obs_arrays, part_spaces
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

RANDOM_STEPS = 100
N_ENVS = 2
SHORT: dict[str, Any] = {
    "n_envs": N_ENVS,
    "n_steps": 12,
    "max_epochs": 2,
    "max_episode_steps": 10,
    "eval_freq_epochs": 2,
    "eval_episodes": 1,
    "test_episodes": 1,
    "seed": 1,
}
# Algorithms with a replay buffer must reach their first update, and need no space for a million
# images.
SHORT_REPLAY: dict[str, Any] = {
    "learning_starts": 8,
    "train_freq": 8,
    "updates_per_step": 0.1,
    "buffer_size": 1000,
}
# A missing package is not a failure of the config; the error says how to install it.
_ABSENT = "pip install"


def short_config(name: str, **overrides: Any) -> Config:
    """The config with a budget of two short epochs."""
    config = load_config(name)
    has_replay = hasattr(config, "learning_starts")
    groups = {"group_size": N_ENVS} if getattr(config, "same_start_envs", 1) > 1 else {}
    short = {**SHORT, **(SHORT_REPLAY if has_replay else {}), **groups, **overrides}
    return load_config(name, overrides=short)


def short_training(name: str, runs_root: Path) -> Run:
    """Train for two epochs, with an evaluation and a test."""
    return train(short_config(name), runs_root=runs_root)


def random_steps(config: Config, n_steps: int) -> dict[str, Any]:
    """Step a config's environments with random actions. Observations and rewards must be finite,
    and observations must have the shape of the space."""
    env = env_from_config(config, N_ENVS)
    try:
        policy = RandomPolicy(env.action_space, N_ENVS, seed=1)
        obs = env.reset(1)
        begun_s = time.perf_counter()
        for _ in range(n_steps):
            _check_observations(obs, env.observation_space)
            step = env.step(policy.act(env.action_mask))
            if not np.isfinite(step.reward).all():
                raise GsolveError(f"a reward is not finite: {step.reward.tolist()}")
            obs = step.obs
        speed = n_steps * N_ENVS / max(time.perf_counter() - begun_s, 1e-9)
        return {"engine": env.spec.engine, "env_steps_per_s": speed}
    finally:
        env.close()


def _check_observations(obs: Any, space: Any) -> None:
    spaces = part_spaces(space)
    for name, part in obs_arrays(obs):
        shape = (N_ENVS, *(spaces[name].shape or ()))
        if part.shape != shape or not np.isfinite(part).all():
            what = f"observation part {name!r}" if name else "observations"
            raise GsolveError(f"{what} of shape {part.shape} do not match {spaces[name]}")


def smoke(job: str | dict[str, Any]) -> dict[str, Any]:
    """Test one config, given by name or as {name, steps}: status pass, fail or skip, and the
    reason."""
    settings = {"name": job} if isinstance(job, str) else job
    name, n_steps = settings["name"], int(settings.get("steps", RANDOM_STEPS))
    begun_s, stage = time.perf_counter(), "load"
    result: dict[str, Any] = {"name": name}
    try:
        config = load_config(name)
        stage = "random"
        result |= random_steps(config, n_steps)
        stage = "train"
        with tempfile.TemporaryDirectory() as folder:
            meta = short_training(name, Path(folder)).meta()
        if meta["status"] != "finished":
            raise GsolveError(f"the run is {meta['status']}, not finished")
    except GsolveError as error:
        skipped = isinstance(error, MissingError) or _ABSENT in str(error)
        result |= {"status": "skip" if skipped else "fail", "reason": _one_line(stage, error)}
    except Exception as error:  # a bug here or in the environment, reported in the table
        result |= {"status": "fail", "reason": _one_line(stage, error, type(error).__name__)}
    else:
        result |= {"status": "pass", "reason": ""}
    return result | {"wall_s": time.perf_counter() - begun_s}


def _one_line(stage: str, error: Exception, kind: str = "") -> str:
    text = " ".join(str(error).split())
    return f"{stage}: {kind + ': ' if kind else ''}{text}"
