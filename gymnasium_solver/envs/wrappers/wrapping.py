"""Puts the wrappers that a config names around an env, and checks and lists them.

    request, rest = lower(config.env_wrappers, request)     # with what the engine does itself
    env = wrap(env, rest)

An engine cuts episodes and skips frames itself: by `FrameSkipEnv`, around each env of Gymnasium's
sync and async engines, or by EnvPool's engine. In both an env whose episode ends within a
skip stops there: its row shows the true final observation and the rewards up to it, and no frame of
the next episode is touched.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self, SupportsFloat

import gymnasium
import numpy as np

from gymnasium_solver.envs import wrappers
from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.options import (
    constructor_values,
    is_drawing,
    is_single,
    option_problems,
    options_of,
    require,
    wrapper_at,
)
from gymnasium_solver.errors import EnvError
from gymnasium_solver.suggest import ask, nearest

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Named:
    """An entry of `env_wrappers`, under our own names."""

    id: str
    wrapper: Any
    given: dict[str, Any]  # its options

    @classmethod
    def read(cls, spec: Spec) -> Self:
        """EnvError if there is no such wrapper."""
        name, options = _canonical(spec)
        return cls(str(name), wrapper_class(name), options)

    @property
    def is_single(self) -> bool:
        """Whether it wraps each environment by itself, not the batch."""
        return is_single(self.wrapper)

    def options(self, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The checked options, with those of `defaults` that it takes; EnvError if one is wrong."""
        for _, problem in option_problems(self.id, self.wrapper, self.given):
            raise EnvError(problem)
        if self.is_single:
            return constructor_values(self.wrapper, self.given)
        known = options_of(self.wrapper) if defaults else {}
        return {key: value for key, value in (defaults or {}).items() if key in known} | self.given

    def around(self, env: Any, defaults: Mapping[str, Any] | None = None) -> Any:
        return self.wrapper(env, **self.options(defaults))


def lower(
    specs: Sequence[Spec], request: EnvRequest | None = None
) -> tuple[EnvRequest, list[Named]]:
    """The request with what the engine has to do, and the wrappers that go around it.

    Of time limits the smallest holds, wherever it stands. Frames are skipped inside the engine, so
    that an env which ends within a skip waits there for the others; so nothing may lie beneath."""
    request = request or EnvRequest("", 1)
    limits = [] if request.max_episode_steps is None else [request.max_episode_steps]
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise EnvError(f"max_episode_steps must be an int >= 1 (or null), got {limit!r}.")
    skip: tuple[int, int] | None = None
    rest: list[Named] = []
    singles: list[Named] = []
    draws = False
    for named in map(Named.read, specs):
        if named.is_single:
            if rest:
                raise EnvError(
                    f"Wrapper {named.id} wraps single environments, so it must come before "
                    f"{rest[0].id}, which wraps the whole batch. Move it to the front."
                )
            named.options()  # checked before any env is made
            singles.append(named)
            draws = draws or is_drawing(named.wrapper)
        elif named.id not in wrappers.LOWERED:
            rest.append(named)
            draws = draws or named.id == wrappers.PIXELS
        elif named.id == wrappers.TIME_LIMIT:
            limits.append(TimeLimit(None, **named.options()).max_episode_steps)
        elif rest or skip or singles:
            before = rest[0].id if rest else singles[0].id if singles else "the other"
            raise EnvError(
                f"{wrappers.FRAME_SKIP} must come first in env_wrappers, and once: the engine "
                f"skips frames itself. Move it before {before}."
            )
        else:
            skip = FrameSkip(None, **named.options()).range
    asked: dict[str, Any] = {"max_episode_steps": min(limits, default=None), "frame_skip": skip}
    asked |= {"draws": draws, "singles": tuple(singles)}
    render_mode = "rgb_array" if draws else request.render_mode
    return replace(request, render_mode=render_mode, **asked), rest


def with_frame_options(
    env_id: str, env_wrappers: Sequence[Spec], given: Mapping[str, Any]
) -> list[Spec]:
    """The wrappers with those that a config's fields ask for. Frames are skipped beneath all other
    wrappers; gray, size and stack come last."""
    specs = list(env_wrappers)
    if given.get("obs_type") is not None:
        raise EnvError(f"{env_id}: obs_type is an option of Atari games (ALE/...). Leave it unset.")
    if (given.get("frame_skip") or 1) > 1:
        if any(_canonical(spec)[0] == wrappers.FRAME_SKIP for spec in specs):
            raise EnvError(
                f"{env_id}: frame_skip and {wrappers.FRAME_SKIP} are both given. Use one."
            )
        specs.insert(0, {"id": wrappers.FRAME_SKIP, "skip": given["frame_skip"]})
    if given.get("grayscale_obs"):
        specs.append({"id": wrappers.GRAYSCALE})
    size = given.get("resize_obs")
    if size:
        specs.append({"id": wrappers.RESIZE, "shape": [84, 84] if size is True else list(size)})
    if (given.get("frame_stack") or 1) > 1:
        specs.append({"id": wrappers.FRAME_STACK, "stack_size": given["frame_stack"]})
    return specs


def wrap(
    env: VectorEnv, specs: Iterable[Spec | Named], defaults: Mapping[str, Any] | None = None
) -> VectorEnv:
    """Wrap `env` in order: the first spec is the innermost. An error closes the env.

    `defaults` are values of the run (its gamma) for options that a wrapper has and a spec lacks."""
    try:
        for spec in specs:
            named = spec if isinstance(spec, Named) else Named.read(spec)
            made: VectorWrapper = named.around(env, defaults)
            made.given = {"id": named.id, **named.given}
            env = made
    except BaseException:
        env.close()
        raise
    return env


def check_wrappers(specs: Sequence[Spec]) -> None:
    """EnvError for a name that is not registered, or options that the wrapper does not take."""
    for named in map(Named.read, specs):
        named.options()
    lower(specs)  # their order


def wrapper_problems(spec: Spec) -> Iterator[tuple[str, str]]:
    """(option, what is wrong) for each problem of an entry; the option "id" is its name."""
    try:
        named = Named.read(spec)
    except EnvError as error:
        yield "id", str(error)
        return
    yield from option_problems(named.id, named.wrapper, named.given)


def wrapper_class(name: Any) -> Any:
    """The class behind a name, or EnvError with the nearest names."""
    name = wrappers.ALIASES[name][0] if name in wrappers.ALIASES else name
    if name in wrappers.registered:
        found = wrappers.registered[name]
        if not is_batch_wrapper(found):
            raise EnvError(
                f"Wrapper {name} acts on a whole batch: {found!r} must be a class that derives "
                "from gymnasium_solver.envs.vector.VectorWrapper."
            )
        return found
    target = wrappers.SHIPPED.get(name) or wrappers.LOWERED.get(name)
    if target is None:
        if isinstance(name, str) and ("." in name or ":" in name):
            return wrapper_at(name)
        raise _unknown(name)
    module, _, attribute = target.partition(":")
    return getattr(import_module(f"{wrappers.__name__}.{module}"), attribute)


def _unknown(name: Any) -> EnvError:
    """The error for a name that is neither registered nor an import path."""
    by_path = {wrapper: f"gymnasium.wrappers.{wrapper}" for wrapper in gymnasium.wrappers.__all__}
    known = wrappers.wrapper_names()
    near = nearest(str(name), [*known, *by_path], n=3)
    hint = ask([n if n in known else by_path[n] for n in near])
    hint = hint or f"Known: {', '.join(known)}; others by import path: module.ClassName."
    if name in by_path:
        hint = f"Gymnasium's is named by its import path: {by_path[name]}."
    return EnvError(f"Unknown env wrapper {name!r}. {hint}")


def is_batch_wrapper(wrapper: Any) -> bool:
    """Whether what a plugin registered can be used."""
    return isinstance(wrapper, type) and issubclass(wrapper, VectorWrapper)


def _canonical(spec: Spec) -> tuple[Any, dict[str, Any]]:
    """The id and the options of a spec under our own names."""
    name = spec.get("id")
    ours: Any = wrappers.PATH_ALIASES.get(str(name).replace(":", "."), name)
    ours, renamed = wrappers.ALIASES.get(ours, (ours, {}))
    return ours, {renamed.get(key, key): value for key, value in spec.items() if key != "id"}


# -- all wrappers, for the docs and the command line ----------------------------------------------


@dataclass(frozen=True)
class WrapperEntry:
    id: str
    about: str  # the first paragraph of its documentation, on one line
    options: tuple[inspect.Parameter, ...]  # in words: `words_for(option.annotation)`
    aliases: tuple[str, ...]  # other ids that mean the same
    is_shipped: bool  # false where a plugin registered it


def wrapper_catalog() -> list[WrapperEntry]:
    """Every wrapper once: ours in the order of their kinds, then the valid ones of plugins
    (others are reported when a config uses them)."""
    registered = sorted(wrappers.registered.items())
    own = [name for name, found in registered if is_batch_wrapper(found)]
    return [_entry(name) for name in (*wrappers.SHIPPED, *wrappers.LOWERED, *own)]


def _entry(name: str) -> WrapperEntry:
    wrapper = wrapper_class(name)
    about = " ".join((inspect.getdoc(wrapper) or "").split("\n\n")[0].split())
    aliases = tuple(alias for alias, (target, _) in wrappers.ALIASES.items() if target == name)
    options = tuple(options_of(wrapper).values())
    return WrapperEntry(name, about, options, aliases, name not in wrappers.registered)


# -- wrappers that an engine carries out ----------------------------------------------------------


_STREAM = 0x5C1B  # keeps the draws of skips apart from those of the env, which has the same seed


class TimeLimit:
    """Cuts an episode (truncated) after `max_episode_steps`; the smallest of all limits holds. With
    frames skipped, the limit is in frames."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        wrong = f"max_episode_steps must be an int >= 1, got {max_episode_steps!r}"
        require(max_episode_steps >= 1, self, wrong)
        self.max_episode_steps = max_episode_steps


class FrameSkip:
    """Holds an action for `skip` frames and adds up their rewards; `[low, high]` draws a number of
    frames for each step, both ends included. One env step is one action, however many frames."""

    def __init__(self, env: Any, skip: int | list[int]) -> None:
        ends = [skip, skip] if isinstance(skip, int) else list(skip)
        wrong = f"skip must be a whole number >= 1 or [low, high] of such, got {skip!r}"
        require(len(ends) == 2 and 1 <= ends[0] <= ends[1], self, wrong)
        self.range: tuple[int, int] = (ends[0], ends[1])


def skip_generator(seed: int) -> np.random.Generator:
    """Draws the lengths of stochastic skips: from the seed of a reset alone."""
    return np.random.default_rng([seed, _STREAM])


class FrameSkipEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """FrameSkip around one env of Gymnasium."""

    def __init__(self, env: gymnasium.Env[Any, Any], low: int, high: int) -> None:
        super().__init__(env)
        self._low, self._high = low, high
        self._rng = skip_generator(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = skip_generator(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total, n_frames = 0.0, self._low
        if self._low != self._high:
            n_frames = int(self._rng.integers(self._low, self._high + 1))
        for _ in range(n_frames):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
