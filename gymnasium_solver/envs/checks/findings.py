"""Everything that `gsolve doctor env ID` finds out about an environment, in its order."""

from collections.abc import Iterator
from typing import Any

from gymnasium_solver.envs.catalogue import find_environment, space_text
from gymnasium_solver.envs.checks.env import Finding, examine, raw_findings, steps_per_s
from gymnasium_solver.envs.checks.spec_block import spec_mismatches
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.sheet import render_frame
from gymnasium_solver.errors import EnvError

ENGINES = ("auto", "envpool", "vector", "sync")
N_ENVS = 8
FASTER = 1.3  # how much faster another engine must be before it is recommended


def all_findings(env_id: str, env_kwargs: dict[str, Any], n_steps: int) -> Iterator[Finding]:
    env = make_vector_env(env_id, 1, env_kwargs=env_kwargs)
    seen, acts = space_text(env.observation_space), space_text(env.action_space)
    yield Finding("made", "ok", f"observes {seen}, acts {acts}, {env.spec.engine}")
    if (entry := find_environment(env_id)) is not None:
        problems = spec_mismatches(entry.spec, env)
        for problem in problems:
            yield Finding("spec", "advice", problem, "fix the spec block of its config")
        if not problems:
            yield Finding("spec", "ok", "the labels in its config match the spaces")
    env.close()
    yield from raw_findings(env_id, env_kwargs)
    yield from examine(env_id, env_kwargs, n_steps)
    yield speed_finding(env_id, env_kwargs)
    frame, drawn = render_frame(env_id, env_kwargs)
    if frame is None:
        yield Finding("rendering", "advice", f"no frame: {drawn}", "rendering will not work")
    else:
        height, width = frame.shape[:2]
        yield Finding("rendering", "ok", f"{width} × {height} pixels by {drawn}")


def speed_finding(env_id: str, env_kwargs: dict[str, Any]) -> Finding:
    """Steps per second with 8 envs, on every engine that has the environment."""
    speeds: dict[str, float] = {}
    auto = ""
    for mode in ENGINES:
        try:
            env = make_vector_env(env_id, N_ENVS, env_kwargs=env_kwargs, vectorization_mode=mode)
        except EnvError:
            continue  # this engine does not have it
        try:
            auto = auto or env.spec.engine
            if env.spec.engine not in speeds:
                speeds[env.spec.engine] = steps_per_s(env)
        finally:
            env.close()
    listed = ", ".join(f"{name} {speed:,.0f} steps/s" for name, speed in speeds.items())
    text = f"{N_ENVS} envs: {listed}; auto uses {auto}"
    best = max(speeds, key=lambda name: speeds[name])
    if speeds[best] > FASTER * speeds[auto]:
        return Finding("speed", "advice", text, f"vectorization_mode: {best}")
    return Finding("speed", "ok", text)
