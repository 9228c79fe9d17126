"""Everything from Python: train, resume, load, evaluate, make the environment of a run.

    import gymnasium_solver as gs

    run = gs.train("CartPole-v1:ppo", progress=True)
    agent, env = run.agent(), gs.make_env(run)
    obs, info = env.reset()
    obs, reward, terminated, truncated, info = env.step(agent.act(obs))
    gs.evaluate(run, episodes=100).mean

docs/python.md is the guide. What is done here is done by `training/`; this module resolves what a
user names and shows the console.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import gymnasium

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.given import Factory, as_factory, cannot_rebuild, given_env, given_id
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import LAST
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.training import loop
from gymnasium_solver.training.activity import PREEMPTED, sigterm_exits
from gymnasium_solver.training.observer import Callbacks, EvalResult, Observer, OnEpoch, OnEval
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.score import score, score_in
from gymnasium_solver.training.targets import (
    ENV_FIELDS,
    EVAL_FIELDS,
    Found,
    Target,
    find_target,
    play_env,
    with_fields,
)

RunsDir = str | Path | None
EnvTarget = str | Config | Factory
"""A config's name, a file, an environment's id, a Config, an environment's class or factory."""


def train(
    target: EnvTarget,
    *,
    algo: str | None = None,
    env: Factory | None = None,
    progress: bool | None = None,
    on_epoch: OnEpoch | None = None,
    on_eval: OnEval | None = None,
    observers: Sequence[Observer] = (),
    runs_dir: RunsDir = None,
    fill: Mapping[str, str] | None = None,
    trust: bool = False,
    **fields: Any,
) -> Run:
    """Train and return the run.

    `target`: "CartPole-v1:ppo", a file, a Config, or an environment's class or factory, trained
    with `algo`. Without a config and `algo`, random actions measure the environment, and a preset
    is chosen. `fields` override fields of the config; `fill` gives the values of its placeholders.
    `env` replaces the config's environment by a class or factory. `trust`: also import code that
    the config of a run made elsewhere names.

    `progress=True` (or `quiet=False`) shows what `gsolve train` shows. `on_epoch(row)` and
    `on_eval(result)` are called during training; if one returns True or a text, the run is saved
    and stops. So does an interrupt (Ctrl-C): `train` then returns the run, with the status
    "interrupted", and `resume` continues it. SIGTERM saves too and ends the program with the exit
    code 75, as `gsolve train` does. Raises DivergedError if a value in training is not finite."""
    named: str | Config | None = None
    if isinstance(target, str | Config):
        named = target
    elif env is None:
        env = target
    else:
        raise EnvError("train() got an environment twice: as its first argument and as env=.")
    with _environment(env, None, "train()", fields.get("env_kwargs")) as env_id:
        config = _config(named, algo, env_id, fields, fill, trust)
        with sigterm_exits(), _console(progress, fields, config, runs_dir) as console:
            run = loop.train(
                config,
                runs_root=runs_root(runs_dir),
                command=["gymnasium_solver.train", config.env_id],
                observers=[*console, *observers, Callbacks(on_epoch, on_eval)],
            )
    return _unless_terminated(run)


def resume(
    run: Run | str = "@last",
    *,
    env: Factory | None = None,
    progress: bool | None = None,
    on_epoch: OnEpoch | None = None,
    on_eval: OnEval | None = None,
    observers: Sequence[Observer] = (),
    runs_dir: RunsDir = None,
    trust: bool = False,
    **fields: Any,
) -> Run:
    """Continue a run from its last checkpoint, or from the one in "RUN/@best", in its folder.

    The result is the same, bit for bit, as without the interruption. `fields` change its config,
    such as `max_env_steps=200_000`. `env` is needed if the run was trained on an environment given
    as Python code. `trust`: also import code that the config of a run made elsewhere names. The
    rest is as in `train`."""
    root = runs_root(runs_dir)
    found = resolve_checkpoint(run, root, default=LAST)
    config = load_config(str(found.run.config_path), trust=trust)
    kwargs = fields.get("env_kwargs", config.env_kwargs)
    with (
        _environment(env, config, "resume()", kwargs),
        sigterm_exits(),
        _console(progress, fields, config, runs_dir) as console,
    ):
        resumed = loop.resume(
            f"{found.run.path.resolve()}/{found.label}",
            runs_root=root,
            overrides=fields,
            command=["gymnasium_solver.resume", found.run.id],
            observers=[*console, *observers, Callbacks(on_epoch, on_eval)],
            trust=trust,
        )
    return _unless_terminated(resumed)


def evaluate(
    target: Agent | Run | str,
    episodes: int | None = 100,
    *,
    seed: int | str | None = None,
    greedy: bool | None = None,
    env: gymnasium.Env | gymnasium.vector.VectorEnv | Factory | None = None,
    as_trained: bool = False,
    runs_dir: RunsDir = None,
    trust: bool = False,
    **fields: Any,
) -> EvalResult:
    """Score an agent, a run (its best checkpoint) or "RUN/@last" on whole episodes.

    The same numbers as `gsolve eval` for the same episodes and seed. `seed`: a number, or "test"
    (default), "val" or "train", the stage whose episodes are played. `episodes=None`: as many as
    the run's own test. `greedy`: by default as the run is judged (`eval_deterministic`).

    `env`: a class or factory takes the place of the run's environment, inside the run's wrappers.
    An environment object is played as it is and not closed; its observations must be those that
    `agent.act` takes, or with `as_trained=True` exactly as the policy saw them. `fields` change
    fields of the environment, such as `max_episode_steps=200`. `trust`: also import code that the
    config of a run made elsewhere names."""
    _check_count("episodes", episodes)
    found = find_target(target, runs_root(runs_dir), trust=trust)
    greedy = found.is_greedy(greedy)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        if fields:
            raise ConfigError(f"{', '.join(fields)}: no effect on an environment that is given.")
        return score_in(found, env, episodes or 100, seed, greedy, as_trained)
    if as_trained:
        raise ConfigError("as_trained is for an environment object that is given with env=.")
    found = with_fields(found, fields, EVAL_FIELDS)
    with _environment(env, found.config, "evaluate()", found.config.env_kwargs) as env_id:
        found = _in_env(found, env_id)
        mode = "greedy" if greedy else "sampled"
        return score(found, episodes, seed, {mode: greedy}).results[mode]


@overload
def make_env(
    target: Agent | Run | Config | str,
    n_envs: None = None,
    *,
    render_mode: Literal["rgb_array", "human"] | None = None,
    seed: int | None = None,
    env: Factory | None = None,
    runs_dir: RunsDir = None,
    trust: bool = False,
    **fields: Any,
) -> gymnasium.Env: ...
@overload
def make_env(
    target: Agent | Run | Config | str,
    n_envs: int,
    *,
    render_mode: Literal["rgb_array", "human"] | None = None,
    seed: int | None = None,
    env: Factory | None = None,
    runs_dir: RunsDir = None,
    trust: bool = False,
    **fields: Any,
) -> gymnasium.vector.VectorEnv: ...
def make_env(
    target: Target,
    n_envs: int | None = None,
    *,
    render_mode: Literal["rgb_array", "human"] | None = None,
    seed: int | None = None,
    env: Factory | None = None,
    runs_dir: RunsDir = None,
    trust: bool = False,
    **fields: Any,
) -> gymnasium.Env | gymnasium.vector.VectorEnv:
    """The environment of a run (or a config) as a Gymnasium env, in which `agent.act` plays.

    It has the run's env_kwargs and all of its wrappers; those that map single observations
    (scaling, one-hot) are applied by `act`, so `env.observation_space` is the space before them.
    With `n_envs` it is a Gymnasium vector env. A run that was trained on EnvPool gets Gymnasium's
    own environment of that id, and a warning says so. `fields` change fields of the environment.
    `trust`: also import code that the config of a run made elsewhere names."""
    _check_count("n_envs", n_envs)
    target_found = find_target(target, runs_root(runs_dir), trust=trust)
    found = with_fields(target_found, fields, ENV_FIELDS)
    with _environment(env, found.config, "make_env()", found.config.env_kwargs) as env_id:
        found = _in_env(found, env_id)
        return play_env(found, n_envs=n_envs, render_mode=render_mode, seed=seed)


def open_run(run: str = "@last", runs_dir: RunsDir = None) -> Run:
    """The run named by @last, an id, a unique part of an id, or a path."""
    return resolve_run(run, runs_root(runs_dir))


def list_runs(filter: str | None = None, runs_dir: RunsDir = None) -> list[Run]:
    """All runs, newest first. `filter`: words that must all occur in the id, environment,
    algorithm or status; "solved" selects solved runs."""
    return [Run(Path(found.path)) for found in query.list_runs(runs_root(runs_dir), filter)]


# -- what the functions above share -----------------------------------------------------------


def _config(
    target: str | Config | None,
    algo: str | None,
    env_id: str | None,
    fields: dict[str, Any],
    fill: Mapping[str, str] | None,
    trust: bool,
) -> Config:
    """The config to train; `env_id` is set if an environment was given as Python code."""
    if target is None:
        assert env_id is not None
        note = f"{env_id}, given to gs.train as Python code: this config alone cannot rebuild it."
        config = load_config(env_id, algo, overrides=fields, fill=fill, chooses=True)
        own = fields.get("description") or f"{note} {config.description}"
        return config.replace(description=own)
    if isinstance(target, Config):
        if algo is not None and algo != target.algo_id:
            raise ConfigError(f"algo {algo!r}: the config is one of {target.algo_id}.")
        config = target.replace(**fields) if fields else target
    else:
        config = load_config(target, algo, overrides=fields, fill=fill, trust=trust, chooses=True)
    if env_id is None and is_python_env(config.env_id):
        raise cannot_rebuild(config.env_id)
    return config if env_id is None else _with_env(config, env_id)


def _with_env(config: Config, env_id: str) -> Config:
    """A config for an environment that is stepped by Gymnasium."""
    mode = config.vectorization_mode
    mode = mode if mode in ("sync", "async") else "auto"
    return config.replace(env_id=env_id, vectorization_mode=mode)


def _in_env(found: Found, env_id: str | None) -> Found:
    if env_id is None or env_id == found.config.env_id:
        return found
    return replace(found, config=_with_env(found.config, env_id))


@contextmanager
def _environment(
    env: Any, config: Config | None, where: str, env_kwargs: Mapping[str, Any] | None
) -> Iterator[str | None]:
    """Makes an environment that was given as Python code known under an id; None: none was given.

    A run that was trained on one keeps its id."""
    own_id = config.env_id if config is not None and is_python_env(config.env_id) else None
    if env is None:
        if own_id is not None:
            raise cannot_rebuild(own_id)
        yield None
        return
    if where == "resume()" and own_id is None:
        assert config is not None
        raise EnvError(f"resume(): the run was trained on {config.env_id}; leave env out.")
    factory = as_factory(env, where)
    with given_env(factory, own_id or given_id(factory), env_kwargs) as env_id:
        yield env_id


def _unless_terminated(run: Run) -> Run:
    """A script must not go on with its next training after a SIGTERM that stopped this one."""
    meta = run.meta()
    if meta.get("stop_reason") == "interrupted" and meta.get("stop_detail") == "SIGTERM":
        raise SystemExit(PREEMPTED)
    return run


@contextmanager
def _console(
    progress: bool | None, fields: Mapping[str, Any], config: Config, runs_dir: RunsDir
) -> Iterator[list[Observer]]:
    """The console of a training, if it is shown."""
    if not (fields.get("quiet") is False if progress is None else progress):
        yield []
        return
    from gymnasium_solver.cli.console import TrainConsole

    place = None if runs_dir is None else str(runs_dir)
    with TrainConsole(quiet=config.quiet, runs_dir=place) as console:
        yield [console]


def _check_count(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"{name} must be a whole number >= 1 or None, got {value!r}.")
