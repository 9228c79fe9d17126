"""Which engine steps an environment, and the errors for ids that none has."""

from dataclasses import dataclass
from typing import Any

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.envs.given import cannot_rebuild
from gymnasium_solver.envs.spec import (
    VECTOR_IS_FASTEST,
    UnknownId,
    Unsupported,
    registry_entry,
    suite_of,
)
from gymnasium_solver.envs.suites.atari_ids import near_games
from gymnasium_solver.envs.wrappers import EngineNeeds
from gymnasium_solver.errors import EnvError, UnknownEnvError
from gymnasium_solver.suggest import ask, did_you_mean

ONE_BY_ONE = "Gymnasium steps the envs one by one"


@dataclass(frozen=True)
class Choice:
    """An engine: envpool, vector, sync or async."""

    mode: str
    reason: str
    notes: tuple[str, ...] = ()
    """What the user should know about it."""


def choose_engine(
    env_id: str, n_envs: int, kwargs: dict[str, Any], render_mode: str | None, needs: EngineNeeds
) -> Choice:
    """The engine `auto` takes: the measured exceptions, EnvPool, the env's own vectorised class,
    sync. Never async, which is slower than sync for all but slow environments."""
    entry = registry_entry(env_id)
    if needs.singles:
        return _with_single_envs(env_id, entry, needs)
    if env_id in VECTOR_IS_FASTEST and render_mode is None and not needs.frame_skip:
        if n_envs == 1:
            return Choice("sync", "a single env of this kind is fastest without batching")
        return Choice("vector", "Gymnasium's vectorised class is the fastest for this env")
    from gymnasium_solver.envs.engines.envpool import pool_twin, translate

    try:
        translate(env_id, kwargs)
        if needs.draws and entry is not None and suite_of(entry.entry_point) == "toy_text":
            raise Unsupported(f"EnvPool does not draw {env_id}")
        return Choice("envpool", "EnvPool has this env")
    except Unsupported as error:
        why = str(error)
        if entry is None:
            raise unknown_id(env_id) if isinstance(error, UnknownId) else EnvError(why) from error
    twin = pool_twin(env_id)
    notes = () if twin is None else (faster_id(env_id, twin),)
    if entry.vector_entry_point is not None and not needs.frame_skip:
        return Choice("vector", f"{why}; the env has a vectorised class", notes)
    if needs.frame_skip:
        why += "; its vectorised class cannot skip frames" if entry.vector_entry_point else ""
    return Choice("sync", f"{why}; {ONE_BY_ONE}", notes)


def faster_id(env_id: str, twin: str) -> str:
    """The note about an id that a package was named for, though EnvPool has the environment."""
    return f"EnvPool has this environment too and steps it much faster: use {twin} for {env_id}"


def _with_single_envs(env_id: str, entry: Any, needs: EngineNeeds) -> Choice:
    """For wrappers that need single environments."""
    names = ", ".join(single.name for single in needs.singles)
    if entry is None:
        from gymnasium_solver.envs.engines.envpool import has_id

        if not has_id(env_id):
            raise unknown_id(env_id)
        raise EnvError(
            f"{env_id}: {names} wraps single environments, which EnvPool does not give, and "
            "Gymnasium does not have this id. Use a wrapper of batches (docs/wrappers.md)."
        )
    note = f"{names} wraps single environments: they are stepped one by one, slower than by EnvPool"
    return Choice("sync", f"for {names}; {ONE_BY_ONE}", (note,))


def unknown_id(env_id: str) -> EnvError:
    """The error for an unknown id, with the nearest ids that exist."""
    if is_python_env(env_id):
        return cannot_rebuild(env_id)
    import gymnasium

    from gymnasium_solver.envs.suites.bandit import SETS
    from gymnasium_solver.envs.suites.probe import PROBES
    from gymnasium_solver.envs.suites.vizdoom import SCENARIOS

    known = [*gymnasium.registry, "Bandit-v0", *PROBES]
    known += [f"Bandit/{name}" for name in SETS] + [f"VizDoom-{name}-v0" for name in SCENARIOS]
    try:
        import envpool
    except ImportError:
        pass
    else:
        specs = envpool.registration.registry.specs
        known += [f"ALE/{id}" if specs[id][0] == "envpool.atari" else id for id in specs]
    if env_id in known:  # of another engine than the one that was asked for
        return UnknownEnvError(
            f"Gymnasium has no {env_id!r}, EnvPool has. Use vectorization_mode auto or envpool."
        )
    hint = ask(near_games(env_id)) or did_you_mean(env_id, known, n=5, cutoff=0.6)
    hint = hint or "No registered id is like it."
    return UnknownEnvError(
        f"Unknown environment {env_id!r}. {hint} An environment of your own must be registered "
        "with Gymnasium by a module named in `plugins`."
    )
