"""The options of wrappers, checked by the annotations of constructors, and wrappers that are named
by import path.

    def __init__(self, env: VectorEnv, scale: float = 1.0, kind: Literal["a", "b"] = "a"): ...

takes a finite number and one of two words. Pydantic does the checking, in strict mode: 1 is a
number, "1" and true are not. Options without an annotation take any value.

Wrappers by import path are those of docs/wrappers.md#by-import-path: a gymnasium.Wrapper wraps each
environment by itself, inside the engine, a VectorWrapper the batch. Functions and spaces are given
by import path, too.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import gymnasium
import numpy as np
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from gymnasium_solver.config.code import import_code
from gymnasium_solver.config.explain import describe
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import id_of
from gymnasium_solver.errors import EnvError, TrustError
from gymnasium_solver.spaces.space_types import is_discrete
from gymnasium_solver.suggest import did_you_mean

_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
# Their statistics stay in the wrapper: they would be lost at a resume and missing in evaluations.
_INSTEAD = {
    "NormalizeObservation": "Set normalize_obs: rolling instead, whose statistics are saved with "
    "the policy and frozen when it is evaluated.",
    "NormalizeReward": "Set normalize_reward: true instead, whose statistics are saved with the "
    "run.",
    "Autoreset": "Engines reset an environment after its last step themselves. Leave it out.",
}
_DRAWING = ("AddRenderObservation", "RecordVideo")
_IMPORT_PATH = re.compile(r"[^\W\d]\w*([.:]\w+)+")
_PLAIN = (bool, int, float, str, type(None), list, tuple, dict)


def options_of(wrapper: type) -> dict[str, inspect.Parameter]:
    """A wrapper's options by name, with resolved annotations. The env is not one of them."""
    _env, *rest = inspect.signature(wrapper).parameters.values()
    try:
        hints = get_type_hints(wrapper.__init__)  # type: ignore[misc]
    except (NameError, TypeError):  # annotations that exist for a type checker only
        hints = {}
    return {p.name: p.replace(annotation=hints.get(p.name, Any)) for p in rest}


def option_problems(
    name: str, wrapper: type, given: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """(option, what is wrong with it) for each that is unknown, missing or of the wrong type."""
    options = options_of(wrapper)
    takes = f"It takes: {', '.join(options) or 'nothing'}."
    is_open = any(p.kind is p.VAR_KEYWORD for p in options.values())
    for key in given:
        if key not in options and not is_open:
            hint = " ".join(filter(None, (did_you_mean(key, options), takes)))
            yield key, f"Wrapper {name}: unknown option {key!r}. {hint}"
    wrong = _wrong_native_value if is_single(wrapper) else _wrong_value
    for key, option in options.items():
        is_variable = option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL)
        if key not in given:
            if option.default is option.empty and not is_variable:
                yield key, f"Wrapper {name}: missing a required argument: {key!r}. {takes}"
        elif not is_variable and (problem := wrong(option.annotation, given[key])):
            yield key, f"Wrapper {name}: {key} {problem}"


def _wrong_value(annotation: Any, value: Any) -> str | None:
    """What is wrong with the value of an option. A YAML list may stand for a tuple, and from Python
    a tuple for a list."""
    is_row = isinstance(value, list | tuple)
    for candidate in (value, tuple(value), list(value)) if is_row else (value,):
        with suppress(ValidationError):
            _adapter(annotation).validate_python(candidate)
            return None
    return f"must be {words_for(annotation)}, got {value!r}."


def words_for(annotation: Any) -> str:
    """The values that an annotation takes, in words."""
    try:
        schema = _adapter(annotation).json_schema()
    except PydanticUserError:  # a class of the user's own
        return f"a {getattr(annotation, '__name__', annotation)}"
    return describe(schema) if schema else "any value"


def require(holds: bool, wrapper: object, problem: str) -> None:
    """EnvError that names the wrapper and the problem, unless `holds`."""
    if not holds:
        raise EnvError(f"Wrapper {id_of(wrapper)}: {problem}.")


def require_actions(
    wrapper: VectorWrapper, kind: str = "Discrete", fits: Callable[[Any], bool] = is_discrete
) -> Any:
    """The action space of the env inside, if it is of this kind; EnvError otherwise."""
    space = wrapper.env.action_space
    has = f"{wrapper.spec.env_id} has {space}"
    require(fits(space), wrapper, f"needs {kind} actions; {has}")
    return space


@lru_cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=_STRICT)


# -- by import path -------------------------------------------------------------------------------


def object_at(path: str, what: str) -> Any:
    """What an import path (module.name or module:name) names; EnvError if it names nothing."""
    module_name, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        module = import_code(module_name)
    except TrustError:
        raise
    except Exception as error:
        raised = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise EnvError(f"{what}: cannot import {module_name!r}: {raised}") from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        if "renamed" in str(error):
            raise EnvError(f"{what}: {' '.join(str(error).split())}.") from error
        public = getattr(module, "__all__", None) or [n for n in dir(module) if n[:1] != "_"]
        hint = did_you_mean(name, public, n=3)
        raise EnvError(f"{what}: {module_name} has no {name}. {hint}".rstrip()) from error


def wrapper_at(path: str) -> type:
    """The wrapper class at an import path; EnvError for anything that cannot be used here."""
    what = f"Wrapper {path}"
    found = object_at(path, what)
    if isinstance(found, type) and issubclass(found, gymnasium.vector.VectorWrapper):
        name = found.__name__
        single = f"Use gymnasium.wrappers.{name}" if hasattr(gymnasium.wrappers, name) else ""
        raise EnvError(
            f"{what} wraps Gymnasium's vector environments, which are not used here. "
            f"{single or 'Use a wrapper of single environments'}."
        )
    if not isinstance(found, type) or not issubclass(found, gymnasium.Wrapper | VectorWrapper):
        raise EnvError(
            f"{what}: {found!r:.80} must be a class that derives from gymnasium.Wrapper (one "
            "environment) or gymnasium_solver.envs.vector.VectorWrapper (a batch)."
        )
    for name, instead in _INSTEAD.items():
        if issubclass(found, getattr(gymnasium.wrappers, name)):
            raise EnvError(f"{what} cannot be used. {instead}")
    return found


def is_single(wrapper: type) -> bool:
    """Whether a wrapper wraps one environment, not a batch."""
    return issubclass(wrapper, gymnasium.Wrapper)


def is_drawing(wrapper: type) -> bool:
    """Whether a wrapper needs render_mode rgb_array."""
    return any(issubclass(wrapper, getattr(gymnasium.wrappers, name)) for name in _DRAWING)


def constructor_values(wrapper: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options of a wrapper of single environments, as its constructor takes them."""
    options = options_of(wrapper)
    return {
        key: _native(options[key].annotation, value) if key in options else value
        for key, value in given.items()
    }


def _wrong_native_value(annotation: Any, value: Any) -> str | None:
    """What is wrong with the value of an option. Types that YAML cannot hold are left to the
    constructor."""
    kinds = _leaves(annotation)
    if value is None:
        return None
    if _is_object(kinds, annotation):
        if not isinstance(value, str) or not _IMPORT_PATH.fullmatch(value):
            return f"must be an import path, module:name, got {value!r}."
        try:
            object_at(value, value)
        except EnvError as error:
            return f"cannot be found: {error}"
        return None
    is_plain = all((get_origin(kind) or kind) in (*_PLAIN, Literal) for kind in kinds)
    return _wrong_value(annotation, value) if is_plain else None


def _native(annotation: Any, value: Any) -> Any:
    """A checked value as the constructor takes it."""
    kinds = _leaves(annotation)
    if _is_object(kinds, annotation) and value is not None:
        return object_at(value, value)
    if not isinstance(value, list):
        return value
    if np.ndarray in kinds:
        return np.asarray(value, np.float32)
    wants_tuple = any((get_origin(kind) or kind) is tuple for kind in kinds)
    return tuple(value) if wants_tuple else value


def _leaves(annotation: Any) -> list[Any]:
    """The alternatives of a union, or the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [leaf for part in get_args(annotation) for leaf in _leaves(part)]
    return [annotation]


def _is_object(kinds: list[Any], annotation: Any) -> bool:
    """Whether an option is a function or a space, which YAML cannot hold."""
    if isinstance(annotation, str):  # could not be resolved
        return "Callable" in annotation or "Space" in annotation
    origins = [get_origin(kind) or kind for kind in kinds]
    return any(
        origin is Callable or (isinstance(origin, type) and issubclass(origin, gymnasium.Space))
        for origin in origins
    )
