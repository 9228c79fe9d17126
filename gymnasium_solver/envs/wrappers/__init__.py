"""Batch wrappers by name, as `env_wrappers: [{id: RewardScale, scale: 0.1}]` in a config names them.

A wrapper is a `VectorWrapper` whose constructor takes the env and keyword parameters. Write your own in
a module named in `plugins`:

    @register_wrapper("HalfReward")
    class HalfReward(VectorWrapper): ...

Importing this module is light: names are known without importing NumPy or Gymnasium.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from gymnasium_solver.errors import EnvError

if TYPE_CHECKING:
    from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper

_TIME_LIMIT = "TimeLimit"
_SHIPPED = {
    "DiscreteEncoder": "gymnasium_solver.envs.wrappers.observations:DiscreteEncoder",
    "RewardScale": "gymnasium_solver.envs.wrappers.rewards:RewardScale",
    "RewardClip": "gymnasium_solver.envs.wrappers.rewards:RewardClip",
    "CartPoleV1_RewardShaper": "gymnasium_solver.envs.wrappers.rewards:CartPoleRewardShaper",
}
_registered: dict[str, "type[VectorWrapper]"] = {}
W = TypeVar("W", bound="type[VectorWrapper]")


def register_wrapper(name: str) -> Callable[[W], W]:
    """Class decorator: make a wrapper known under `name`."""

    def add(wrapper: W) -> W:
        taken = _registered.get(name)
        same = taken is not None and taken.__qualname__ == wrapper.__qualname__
        if name in _SHIPPED or name == _TIME_LIMIT or (taken is not None and not same):
            raise EnvError(f"A wrapper named {name!r} exists already; choose another name.")
        _registered[name] = wrapper
        return wrapper

    return add


def wrapper_names() -> list[str]:
    """All names that `env_wrappers` may use."""
    return sorted([*_SHIPPED, _TIME_LIMIT, *_registered])


def wrap(env: "VectorEnv", specs: Sequence[Mapping[str, Any]]) -> "VectorEnv":
    """Wrap `env` in order: the first spec is the innermost."""
    for spec in specs:
        kwargs = dict(spec)
        name = kwargs.pop("id", None)
        wrapper = _find(name)
        _check_parameters(name, list(inspect.signature(wrapper).parameters)[1:], wrapper, kwargs)
        env = wrapper(env, **kwargs)
    return env


def lower_time_limit(
    specs: Sequence[Mapping[str, Any]], max_episode_steps: int | None
) -> tuple[int | None, list[Mapping[str, Any]]]:
    """Take TimeLimit out of the specs: the engine cuts episodes itself. The smallest limit holds."""
    limits = [] if max_episode_steps is None else [max_episode_steps]
    rest: list[Mapping[str, Any]] = []
    for spec in specs:
        if spec.get("id") != _TIME_LIMIT:
            rest.append(spec)
            continue
        if set(spec) != {"id", "max_episode_steps"}:
            raise EnvError(f"Wrapper TimeLimit takes max_episode_steps, got {_listed(spec)}.")
        limits.append(spec["max_episode_steps"])
    return (min(limits) if limits else None), rest


def _find(name: Any) -> "type[VectorWrapper]":
    if name in _registered:
        return _registered[name]
    if name not in _SHIPPED:
        near = difflib.get_close_matches(str(name), wrapper_names(), 3)
        hint = (
            f"Did you mean {', '.join(near)}?" if near else f"Known: {', '.join(wrapper_names())}."
        )
        raise EnvError(f"Unknown env wrapper {name!r}. {hint}")
    module, _, attribute = _SHIPPED[name].partition(":")
    found: type[VectorWrapper] = getattr(import_module(module), attribute)
    return found


def _check_parameters(
    name: str, known: list[str], wrapper: Callable[..., Any], kwargs: dict[str, Any]
) -> None:
    try:
        inspect.signature(wrapper).bind(None, **kwargs)
    except TypeError as error:
        takes = ", ".join(known) or "no parameters"
        raise EnvError(f"Wrapper {name}: {error}. It takes: {takes}.") from error


def _listed(spec: Mapping[str, Any]) -> str:
    return ", ".join(key for key in spec if key != "id") or "nothing"
