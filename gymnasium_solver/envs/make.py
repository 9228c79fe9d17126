"""Env id -> vector env under the contract of vector.py. All environments are made here.

    env = make_vector_env("LunarLander-v3", 16)
    env = env_from_config(config, config.n_envs)

`vectorization_mode`: envpool, vector (the env's own vectorised class), sync, async, or auto, which
takes the fastest engine that has the env. The families of spec.py (Atari, VizDoom, bandits, ...)
have engines of their own.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schedule import AUTO, at_start
from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.envs.given import cannot_rebuild
from gymnasium_solver.envs.joined import GroupedEnv, TaskEnv
from gymnasium_solver.envs.spec import (
    ANSWER_WITHIN_S,
    C_IS_FASTEST,
    POOL_DIFFERS,
    VECTOR_IS_FASTEST,
    EnvRequest,
    Family,
    UnknownId,
    Unsupported,
    family_of,
    registry_entry,
    suite_of,
    task_sizes,
)
from gymnasium_solver.envs.suites.game_options import modern, near_games
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.envs.wrappers.actions import restrict_actions
from gymnasium_solver.envs.wrappers.observations import ObsKeys, in_parts, parts_wrapper
from gymnasium_solver.envs.wrappers.wrapping import lower, with_frame_options, wrap
from gymnasium_solver.errors import EnvError, UnknownEnvError
from gymnasium_solver.suggest import ask, did_you_mean

log = logging.getLogger(__name__)

MODES = ("auto", "envpool", "vector", "sync", "async")
FRAME_OPTIONS = ("obs_type", "frame_stack", "frame_skip", "grayscale_obs", "resize_obs")
ENV_FIELDS = (
    *("env_kwargs", "env_wrappers", "obs_keys", "max_episode_steps", "vectorization_mode"),
)
ASKED_FOR = "asked for"
ONE_BY_ONE = "Gymnasium steps the envs one by one"
_NOT_ENV_KWARGS = {
    "max_episode_steps": "Set the field max_episode_steps instead.",
    "render_mode": "The framework chooses it: environments are trained without a window, and drawn "
    "as rgb_array where frames are needed.",
    "num_envs": "Set the field n_envs instead.",
    "seed": "Set the field seed instead.",
}


def make_vector_env(
    env_id: str,
    n_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Mapping[str, Any]] = (),
    obs_keys: ObsKeys | None = None,
    max_episode_steps: int | None = None,
    vectorization_mode: str = "auto",
    render_mode: str | None = None,
    frame_options: Mapping[str, Any] | None = None,
    gamma: float | None = None,
    timeout_s: float | None = ANSWER_WITHIN_S,
) -> VectorEnv:
    """Build `n_envs` copies of an environment, wrapped as `env_wrappers` ([{id, **kwargs}]) say;
    of a Dict observation with the parts that `obs_keys` chooses ([names], or {drop: [names]}).
    `frame_options` are frame_stack, frame_skip, grayscale_obs and resize_obs, as a config's fields
    have them: options of the games that have them, wrappers around other environments. `gamma` is
    the run's discount, for wrappers that shape rewards by a potential. `timeout_s`: how long
    vectorization_mode async waits for an env's answer.

    render_mode "rgb_array" makes `render` work; it may make `auto` take another engine."""
    if vectorization_mode not in MODES:
        raise EnvError(
            f"vectorization_mode {vectorization_mode!r} is unknown, expected {', '.join(MODES)}."
        )
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        raise EnvError(f"{env_id}: n_envs must be an int >= 1, got {n_envs!r}.")
    if render_mode not in (None, "rgb_array"):
        raise EnvError(f"{env_id}: render_mode must be rgb_array or null, got {render_mode!r}.")
    kwargs = dict(env_kwargs or {})
    for name, instead in _NOT_ENV_KWARGS.items():
        if name in kwargs:
            raise EnvError(f"{env_id}: {name} cannot be given in env_kwargs. {instead}")
    wrappers, given = list(env_wrappers), dict(frame_options or {})
    notes: list[str] = []
    if old := modern(env_id):
        env_id, kwargs, notes = old.env_id, {**old.options, **kwargs}, [old.note]
    kwargs = in_parts(env_id, kwargs, obs_keys)
    family = family_of(env_id)
    if family is not None and family.has_frame_options:
        kwargs |= given
    else:
        wrappers = with_frame_options(env_id, wrappers, given)
    asked = vectorization_mode, render_mode, timeout_s, max_episode_steps
    request, around = lower(wrappers, EnvRequest(env_id, n_envs, kwargs, *asked))
    began_s = time.perf_counter()
    env = _make_engine(request) if family is None else _make_family(family, request)
    took_s = time.perf_counter() - began_s
    log.debug("made %s × %d on %s in %.2f s", env_id, n_envs, env.spec.engine, took_s)
    try:
        chosen, note = parts_wrapper(env, obs_keys)
    except EnvError:
        env.close()
        raise
    env = _noted(env, [*notes, *([note] if note else [])])
    env.spec = replace(env.spec, frame_skip=request.frame_skip)
    return wrap(env, [*chosen, *around], {} if gamma is None else {"gamma": gamma})


def training_env(config: Config) -> VectorEnv:
    """The envs to train on: those of a config; in copies with the same seeds where the algorithm
    compares envs that start alike. With collectors, which have the envs, one that shows what they
    are like."""
    if config.collectors is not None:
        return env_from_config(config, 1)
    n_copies = getattr(config, "same_start_envs", 1)
    if n_copies == 1:
        return env_from_config(config, config.n_envs)
    return GroupedEnv([env_from_config(config, config.n_envs // n_copies) for _ in range(n_copies)])


def env_from_config(config: Config, n_envs: int, render_mode: str | None = None) -> VectorEnv:
    """The env that a config describes, in any number of copies; `spec.action_space.valid`, where
    given, masks all other actions. Several `tasks` share the copies."""
    if config.tasks:
        return _task_env(config, n_envs, render_mode)
    timeout_s = getattr(config, "env_timeout_s", None)
    more = {"render_mode": render_mode, "gamma": _first_gamma(config), "timeout_s": timeout_s}
    given = {name: getattr(config, name, None) for name in (*ENV_FIELDS, *FRAME_OPTIONS)}
    return restrict_actions(env_from_fields(config.env_id, n_envs, given, **more), config.spec)


def env_from_fields(env_id: str, n_envs: int, given: Mapping[str, Any], **more: Any) -> VectorEnv:
    """The env that these fields of a config describe; others in `given` are ignored."""
    options = {name: given[name] for name in FRAME_OPTIONS if given.get(name) is not None}
    fields = {name: given[name] for name in ENV_FIELDS if given.get(name) is not None}
    return make_vector_env(env_id, n_envs, frame_options=options, **fields, **more)


def _first_gamma(config: Config) -> float | None:
    """None where it is not decided yet, or there is none."""
    gamma = at_start(config.gamma) if isinstance(config, LearnerConfig) else None
    return None if gamma == AUTO else gamma


def eval_env(config: Config, n_envs: int) -> VectorEnv:
    """The env that evaluations play in."""
    return env_from_config(as_evaluated(config), n_envs)


def as_evaluated(config: Config) -> Config:
    """The config of the env that evaluations play in, and that is shown."""
    if config.eval_frame_skip is None:
        return config
    return config.replace(frame_skip=config.eval_frame_skip)


def _task_env(config: Config, n_envs: int, render_mode: str | None) -> VectorEnv:
    """The tasks of a config; with fewer copies than tasks, the first ones."""
    envs: list[VectorEnv] = []
    try:
        for task, size in zip(config.tasks, task_sizes(len(config.tasks), n_envs), strict=True):
            if size:
                one = config.replace(tasks=[], task_one_hot=False, **task.changes(config))
                envs.append(env_from_config(one, size, render_mode))
        own = [task.reward_threshold for task in config.tasks]
        thresholds = [config.reward_threshold if found is None else found for found in own]
        names = [task.name for task in config.tasks]
        return TaskEnv(envs, names, thresholds, config.task_one_hot)
    except BaseException:
        for env in envs:
            env.close()
        raise


def check_env_id(env_id: str) -> None:
    """EnvError, with the nearest ids, if no engine here has an env of this id. Families are taken
    at their word: their packages may be installed elsewhere."""
    if modern(env_id) or family_of(env_id) is not None or registry_entry(env_id) is not None:
        return
    from gymnasium_solver.envs.engines.envpool import translate

    try:
        translate(env_id, {})
    except UnknownId:
        raise unknown_id(env_id) from None
    except Unsupported:
        return


# -- one engine -----------------------------------------------------------------------------------


def _make_engine(request: EnvRequest) -> VectorEnv:
    """An env of Gymnasium or EnvPool."""
    env_id, mode = request.env_id, request.mode
    choice = choose_engine(request) if mode == "auto" else Choice(mode, ASKED_FOR)
    mode = choice.mode
    if request.singles and mode in ("envpool", "vector"):
        raise EnvError(
            f"{env_id}: {request.singles[0].id} wraps single environments, which the {mode} "
            "engine does not give. Use vectorization_mode auto, sync or async."
        )
    if request.frame_skip and mode == "vector":
        raise EnvError(
            f"{env_id}: its vectorised class cannot skip frames (frame_skip, FrameSkipWrapper). "
            "Use vectorization_mode auto."
        )
    if mode == "envpool":
        return _make_pool(request, choice.reason)
    if registry_entry(env_id) is None:
        raise unknown_id(env_id)
    from gymnasium_solver.envs.engines.gymnasium import GymnasiumEngine

    try:
        engine = GymnasiumEngine(replace(request, mode=mode), choice.reason)
    except EnvError as error:
        if choice.reason != ASKED_FOR and not request.singles and ":" not in env_id:
            # Why this engine was chosen: the real mistake may be what ruled out EnvPool.
            error.args = (f"{error} ({choice.reason})",)
        raise
    return _noted(engine, choice.notes)


def _make_pool(request: EnvRequest, reason: str) -> VectorEnv:
    from gymnasium_solver.envs.engines.envpool import EnvPoolEngine

    try:
        return EnvPoolEngine(request, reason)
    except Unsupported as error:
        if isinstance(error, UnknownId) and registry_entry(request.env_id) is None:
            raise unknown_id(request.env_id) from error
        raise EnvError(f"{error}. Use vectorization_mode auto or sync.") from error


def _make_family(family: Family, request: EnvRequest) -> VectorEnv:
    """An env of a family that steps its copies itself."""
    env_id = request.env_id
    if request.mode not in family.modes:
        raise EnvError(
            f"{env_id} has no {request.mode} engine. Use vectorization_mode "
            f"{' or '.join(family.modes)}."
        )
    if request.singles:
        instead = "Remove it"
        if family.has_frame_options:
            instead = f"Its own options do what such wrappers do: {', '.join(FRAME_OPTIONS[1:])}"
        raise EnvError(
            f"{env_id} steps its copies itself, so {request.singles[0].id} cannot wrap single "
            f"environments. {instead}, or use a wrapper of batches (docs/wrappers.md)."
        )
    low, high = request.frame_skip or (1, 1)
    if request.frame_skip is not None and not family.holds_actions:
        if family.has_frame_options:
            raise EnvError(f"{env_id}: set the field frame_skip instead of FrameSkipWrapper.")
        raise EnvError(f"{env_id} cannot skip frames. Leave out frame_skip and FrameSkipWrapper.")
    if low != high:
        raise EnvError(f"{env_id} skips a fixed number of frames, got {low} to {high}.")
    module, _, name = family.maker.partition(":")
    try:
        home = import_module(f"gymnasium_solver.envs.{module}")
        env: VectorEnv = getattr(home, name)(request)
    except UnknownId as error:
        raise unknown_id(env_id) from error
    return env


def _noted(env: VectorEnv, notes: Sequence[str]) -> VectorEnv:
    """The env, with further notes for the user."""
    if notes:
        env.spec = replace(env.spec, notes=(*env.spec.notes, *notes))
    return env


# -- which engine ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """An engine: envpool, vector, sync or async."""

    mode: str
    reason: str
    notes: tuple[str, ...] = ()  # what the user should know about it


def choose_engine(request: EnvRequest) -> Choice:
    """The engine `auto` takes: the measured exceptions, EnvPool, the env's own vectorised class,
    sync. Never async, which is slower than sync for all but slow environments."""
    env_id = request.env_id
    entry = registry_entry(env_id)
    if request.singles:
        names = ", ".join(single.id for single in request.singles)
        return _with_single_envs(env_id, entry, names)
    if env_id in VECTOR_IS_FASTEST and request.render_mode is None and not request.frame_skip:
        if request.n_envs == 1:
            return Choice("sync", "a single env of this kind is fastest without batching")
        return Choice("vector", "Gymnasium's vectorised class is the fastest for this env")
    own = "" if entry is None else entry.id  # without the name of a module
    if own in C_IS_FASTEST and not request.frame_skip and not request.env_kwargs:
        from gymnasium_solver.envs.engines.c.classics import is_compiled

        if is_compiled(own):
            return Choice("sync", "Gymnasium's env, whose step in C is the fastest")
    from gymnasium_solver.envs.engines.envpool import pool_twin, translate

    if env_id in POOL_DIFFERS and entry is not None:
        return Choice("sync", POOL_DIFFERS[env_id])
    try:
        translate(env_id, request.env_kwargs)
        if request.draws and entry is not None and suite_of(entry.entry_point) == "toy_text":
            raise Unsupported(f"EnvPool does not draw {env_id}")
        return Choice("envpool", "EnvPool has this env")
    except Unsupported as error:
        why = str(error)
        if entry is None:
            raise unknown_id(env_id) if isinstance(error, UnknownId) else EnvError(why) from error
    twin = pool_twin(env_id)
    faster = "EnvPool has this environment too and steps it much faster: use"
    notes = () if twin is None else (f"{faster} {twin} for {env_id}",)
    if entry.vector_entry_point is not None and not request.frame_skip:
        return Choice("vector", f"{why}; the env has a vectorised class", notes)
    if request.frame_skip:
        why += "; its vectorised class cannot skip frames" if entry.vector_entry_point else ""
    return Choice("sync", f"{why}; {ONE_BY_ONE}", notes)


def _with_single_envs(env_id: str, entry: Any, names: str) -> Choice:
    """The engine for wrappers of these names, which need single environments."""
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

    from gymnasium_solver.envs.suites.own import SETS
    from gymnasium_solver.envs.suites.probes import PROBES
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
    module, colon, _ = env_id.rpartition(":")
    if colon:
        from gymnasium_solver.envs.modules import ids_of_module

        return UnknownEnvError(f"Unknown environment {env_id!r}: {ids_of_module(module)}.")
    hint = ask(near_games(env_id)) or did_you_mean(env_id, known, n=5, cutoff=0.6)
    hint = hint or "No registered id is like it."
    return UnknownEnvError(
        f"Unknown environment {env_id!r}. {hint} An environment of your own must be registered "
        "with Gymnasium by a module named in `plugins`."
    )
