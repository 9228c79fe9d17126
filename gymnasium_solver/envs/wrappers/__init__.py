"""Batch wrappers by name, as a config has them: `env_wrappers: [{id: RewardScale, scale: 0.1}]`.

A wrapper is a `VectorWrapper` whose constructor takes the env and keyword parameters. Write your
own in a module named in `plugins`:

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
        kwargs = {key: value for key, value in spec.items() if key != "id"}
        wrapper = _find(spec.get("id"))
        _check_parameters(str(spec["id"]), inspect.signature(wrapper), kwargs)
        env = wrapper(env, **kwargs)
    return env


def lower_time_limit(
    specs: Sequence[Mapping[str, Any]], max_episode_steps: int | None
) -> tuple[int | None, list[Mapping[str, Any]]]:
    """Take TimeLimit out of the specs, for the engine to cut episodes. The smallest limit holds."""
    limits = [] if max_episode_steps is None else [max_episode_steps]
    rest: list[Mapping[str, Any]] = []
    for spec in specs:
        if spec.get("id") != _TIME_LIMIT:
            rest.append(spec)
            continue
        if set(spec) != {"id", "max_episode_steps"}:
            given = ", ".join(key for key in spec if key != "id") or "nothing"
            raise EnvError(f"Wrapper TimeLimit takes max_episode_steps, got {given}.")
        limits.append(spec["max_episode_steps"])
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise EnvError(f"max_episode_steps must be an int >= 1 (or null), got {limit!r}.")
    return min(limits, default=None), rest


def _find(name: Any) -> "type[VectorWrapper]":
    if name in _registered:
        return _registered[name]
    if name not in _SHIPPED:
        near = difflib.get_close_matches(str(name), wrapper_names(), 3)
        known = f"Known: {', '.join(wrapper_names())}."
        hint = f"Did you mean {', '.join(near)}?" if near else known
        raise EnvError(f"Unknown env wrapper {name!r}. {hint}")
    module, _, attribute = _SHIPPED[name].partition(":")
    found: type[VectorWrapper] = getattr(import_module(module), attribute)
    return found


def _check_parameters(name: str, signature: inspect.Signature, kwargs: dict[str, Any]) -> None:
    options = list(signature.parameters)[1:]
    try:
        signature.bind(None, **kwargs)
    except TypeError as error:
        takes = f"It takes: {', '.join(options) or 'nothing'}."
        unknown = [key for key in kwargs if key not in options]
        if not unknown:
            raise EnvError(f"Wrapper {name}: {error}. {takes}") from error
        near = difflib.get_close_matches(unknown[0], options, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise EnvError(f"Wrapper {name}: unknown option {unknown[0]!r}.{hint} {takes}") from error
