"""Env id -> vector env under the contract of vector.py. This is the only door to environments.

    env = make_vector_env("LunarLander-v3", 16)
    env = env_from_config(config, config.n_envs)

`vectorization_mode`: auto, envpool, vector (the env's own vectorised class), sync, async. `auto` takes
this project's own envs, then what was measured fastest: see `_choose`.
"""

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.envs.wrappers import lower_time_limit, wrap
from gymnasium_solver.errors import EnvError

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

MODES = ("auto", "envpool", "vector", "sync", "async")

# Families of our own: id prefix -> maker(env_id, n_envs, max_episode_steps, env_kwargs).
OWN = {
    "Bandit-": "gymnasium_solver.envs.bandit:make_bandit",
    "Probe/": "gymnasium_solver.envs.probe:make_probe",
}
# Gymnasium's NumPy CartPole beats EnvPool from 8 envs on.
_VECTOR_IS_FASTEST = ("CartPole-v0", "CartPole-v1")


def make_vector_env(
    env_id: str,
    n_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Mapping[str, Any]] = (),
    max_episode_steps: int | None = None,
    vectorization_mode: str = "auto",
    render_mode: str | None = None,
) -> VectorEnv:
    """Build `n_envs` copies of an environment, wrapped as `env_wrappers` ([{id, **kwargs}]) say."""
    if vectorization_mode not in MODES:
        raise EnvError(
            f"vectorization_mode {vectorization_mode!r} is unknown, expected {', '.join(MODES)}."
        )
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        raise EnvError(f"{env_id}: n_envs must be an int >= 1, got {n_envs!r}.")
    limit, wrappers = lower_time_limit(env_wrappers, max_episode_steps)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise EnvError(f"{env_id}: max_episode_steps must be an int >= 1 or null, got {limit!r}.")
    kwargs = dict(env_kwargs or {})
    for name in ("max_episode_steps", "render_mode", "num_envs", "seed"):
        if name in kwargs:
            raise EnvError(
                f"{env_id}: {name} does not belong in env_kwargs; it has its own setting."
            )
    engine = _make_engine(env_id, n_envs, kwargs, limit, vectorization_mode, render_mode)
    return wrap(engine, wrappers)


def env_from_config(config: "Config", n_envs: int, render_mode: str | None = None) -> VectorEnv:
    """The env that a config describes, with another number of copies if wanted."""
    return make_vector_env(
        config.env_id,
        n_envs,
        env_kwargs=config.env_kwargs,
        env_wrappers=config.env_wrappers,
        max_episode_steps=config.max_episode_steps,
        vectorization_mode=config.vectorization_mode,
        render_mode=render_mode,
    )


def _make_engine(
    env_id: str,
    n_envs: int,
    kwargs: dict[str, Any],
    limit: int | None,
    mode: str,
    render_mode: str | None,
) -> VectorEnv:
    for prefix, target in OWN.items():
        if env_id.startswith(prefix):
            if mode not in ("auto", "vector"):
                raise EnvError(f"{env_id} is built in: it has no {mode} engine, use auto.")
            module, _, maker = target.partition(":")
            own: VectorEnv = getattr(import_module(module), maker)(env_id, n_envs, limit, kwargs)
            return own
    mode, reason = _choose(env_id, kwargs, render_mode) if mode == "auto" else (mode, "asked for")
    common = {
        "env_kwargs": kwargs,
        "max_episode_steps": limit,
        "render_mode": render_mode,
        "reason": reason,
    }
    if mode == "envpool":
        from gymnasium_solver.envs.envpool_engine import EnvPoolEngine, Unsupported

        try:
            return EnvPoolEngine(env_id, n_envs, **common)
        except Unsupported as error:
            raise EnvError(f"{error}. Use vectorization_mode auto or sync.") from error
    from gymnasium_solver.envs.gymnasium_engine import GymnasiumEngine
    from gymnasium_solver.envs.spec import registry_entry

    if registry_entry(env_id) is None:
        raise _unknown(env_id)
    return GymnasiumEngine(env_id, n_envs, mode, **common)


def _choose(env_id: str, kwargs: dict[str, Any], render_mode: str | None) -> tuple[str, str]:
    """The engine `auto` takes, and why."""
    from gymnasium_solver.envs.envpool_engine import Unsupported, translate
    from gymnasium_solver.envs.spec import registry_entry

    entry = registry_entry(env_id)
    if env_id in _VECTOR_IS_FASTEST and render_mode is None:
        return "vector", "gymnasium's vectorised class is the fastest for this env"
    try:
        translate(env_id, kwargs)
        return "envpool", "EnvPool has this env"
    except Unsupported as error:
        why = str(error)
    if entry is None:
        raise _unknown(env_id)
    if entry.vector_entry_point is not None:
        return "vector", f"{why}; the env has a vectorised class"
    return "sync", f"{why}; stepped one by one by gymnasium"


def _unknown(env_id: str) -> EnvError:
    """The error for an id that nobody has, with the nearest ones that exist."""
    import gymnasium

    known = [*gymnasium.registry, "Bandit-v0"]
    try:
        import envpool
    except ImportError:
        pass
    else:
        known += envpool.list_all_envs()
    by_lower = {name.lower(): name for name in known}
    near = [by_lower[m] for m in difflib.get_close_matches(env_id.lower(), by_lower, 5, 0.6)]
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return EnvError(
        f"Unknown environment {env_id!r}.{hint} An environment of your own must be registered first: "
        "name its module in `plugins`."
    )
