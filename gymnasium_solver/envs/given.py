"""Environments given as Python code: a class, or a function that returns a new environment.

    with given_env(MyEnv) as env_id:            # "Python/MyEnv-v0"
        env = make_vector_env(env_id, 8)

The id exists only inside the block. A run that was trained this way has it in its config, which
therefore cannot be used without the code: `gs.resume`, `gs.evaluate` and `gs.make_env` take `env=`
again. An environment that is registered with Gymnasium has no such limits.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium

from gymnasium_solver.config.env_ids import PYTHON_ENV
from gymnasium_solver.envs.env_bugs import explained
from gymnasium_solver.errors import EnvError

Factory = Callable[..., gymnasium.Env[Any, Any]]
"""A class or a function; every call returns a new environment."""


def given_id(factory: Factory) -> str:
    """The id for a factory: Python/<its name>-v0."""
    inner = getattr(factory, "func", factory)  # a functools.partial
    name = getattr(inner, "__qualname__", type(inner).__name__)
    name = re.sub(r"\W+", "", name.rpartition("<locals>")[2])
    return f"{PYTHON_ENV}{name or 'env'}-v0"


def cannot_rebuild(env_id: str) -> EnvError:
    """The error for a run whose environment was not given again."""
    return EnvError(
        f"{env_id} was given to gs.train as Python code, which a run folder cannot hold. Give it "
        "again with env=, in gs.resume, gs.evaluate or gs.make_env; or register it with Gymnasium "
        "and train by its id."
    )


def as_factory(env: Any, where: str) -> Factory:
    """A class or a function as a factory; EnvError for anything else."""
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        spec = getattr(env, "spec", None)
        by_id = "" if spec is None else f", or its id, {spec.id!r}"
        raise EnvError(
            f"{where} got an environment object, {env}, but needs several copies and others for "
            f"evaluation. Pass its class or a function that makes a new one: lambda: "
            f"{type(env.unwrapped).__name__}(...){by_id}."
        )
    if not callable(env):
        raise EnvError(
            f"{where} got {type(env).__name__} {env!r} as an environment, expected a class or a "
            "function that returns a new gymnasium.Env."
        )
    return env


@contextmanager
def given_env(
    factory: Factory, env_id: str | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Register a factory under an id for the time of the block."""
    env_id = env_id or given_id(factory)
    if env_id in gymnasium.registry:
        raise EnvError(f"{env_id} is in use by another call; give the functions different names.")
    limit, threshold = _facts(factory, dict(env_kwargs or {}))
    gymnasium.register(
        env_id, entry_point=factory, max_episode_steps=limit, reward_threshold=threshold
    )
    try:
        yield env_id
    finally:
        gymnasium.registry.pop(env_id, None)


def _facts(factory: Factory, kwargs: dict[str, Any]) -> tuple[int | None, float | None]:
    """Time limit and threshold, where the environments have a spec; EnvError for a factory that
    cannot be used."""
    first, second = _made(factory, kwargs), _made(factory, kwargs)
    is_same, spec = first.unwrapped is second.unwrapped, first.spec
    second.close()
    if is_same:
        raise EnvError(
            f"{_name(factory)} returns the same environment every time; it must make a new one at "
            "every call."
        )
    first.close()
    return (None, None) if spec is None else (spec.max_episode_steps, spec.reward_threshold)


def _made(factory: Factory, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    given = f" with {kwargs}" if kwargs else ""
    with explained(f"{_name(factory)}{given} failed to make an environment:"):
        env = factory(**kwargs)
    if not isinstance(env, gymnasium.Env):
        raise EnvError(f"{_name(factory)} returned {type(env).__name__}, expected a gymnasium.Env.")
    return env


def _name(factory: Factory) -> str:
    return given_id(factory).removeprefix(PYTHON_ENV).removesuffix("-v0")
