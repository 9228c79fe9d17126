"""What a single Gymnasium environment returns, before any engine casts or copies it.

Engines convert everything to float32; a wrong shape, dtype or type is reported here, where it can
be fixed. Environments that only EnvPool or this project has are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.checks.env import Finding
from gymnasium_solver.envs.checks.rollout import SEED
from gymnasium_solver.envs.spec import registry_entry

N_STEPS = 200


def raw_findings(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """Findings about the registered class; none where Gymnasium cannot make it."""
    entry = registry_entry(env_id)
    if entry is None or entry.entry_point is None:
        return
    try:
        env = gymnasium.make(env_id, disable_env_checker=True, **(env_kwargs or {}))
    except Exception as error:  # whatever its constructor raises: another engine may have it
        text = f"Gymnasium cannot make it: {(str(error).splitlines() or [''])[0]}"
        yield Finding("class", "ok", text)
        return
    try:
        problems = dict.fromkeys(_play(env))
    finally:
        env.close()
    for problem in problems:
        yield Finding(
            "class", "problem", problem, "make reset() and step() return what is declared"
        )
    if not problems:
        yield Finding("class", "ok", "reset() and step() return what the spaces declare")


def _play(env: Any) -> Iterator[str]:
    space = env.observation_space
    env.action_space.seed(SEED)
    answer = env.reset(seed=SEED)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        yield f"reset() returns {type(answer).__name__}, expected (observation, info)"
        return
    yield from _observation(space, answer[0], "reset()")
    for _ in range(N_STEPS):
        answer = env.step(env.action_space.sample())
        if not (isinstance(answer, tuple) and len(answer) == 5):
            yield "step() must return (observation, reward, terminated, truncated, info)"
            return
        obs, reward, terminated, truncated, info = answer
        yield from _observation(space, obs, "step()")
        if not isinstance(reward, int | float | np.number) and not _has_one_element(reward):
            yield f"step() returns the reward {reward!r}, expected a number"
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                yield f"step() returns {name}={flag!r}, expected a bool"
        if not isinstance(info, dict):
            yield f"step() returns info of type {type(info).__name__}, expected a dict"
        if terminated or truncated:
            env.reset()


def _has_one_element(reward: Any) -> bool:
    return isinstance(reward, np.ndarray) and reward.size == 1  # engines take it as a number


def _observation(space: Any, obs: Any, where: str) -> Iterator[str]:
    if isinstance(space, gymnasium.spaces.Box):
        if not isinstance(obs, np.ndarray):
            yield f"{where} returns a {type(obs).__name__}, expected an array of {space.dtype}"
        elif obs.shape != space.shape:
            yield f"{where} returns the shape {obs.shape}, but {space.shape} is declared"
        elif obs.dtype != space.dtype:
            yield f"{where} returns {obs.dtype}, but {space.dtype} is declared"
    elif not space.contains(obs):
        yield f"{where} returns {str(obs)[:60]}, which is not in {space}"
