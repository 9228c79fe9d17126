"""Checks on a wrapper's options by the annotations of its constructor, and those in words.

    def __init__(self, env: VectorEnv, scale: float = 1.0, kind: Literal["a", "b"] = "a"): ...

takes a finite number (a whole one too) and one of two words. What a YAML cannot hold, and an
annotation unknown here, is not checked: a wrapper of the user's own may take what it likes.
"""

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.suggest import did_you_mean

_WORDS: dict[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
_PLURALS: dict[Any, str] = {float: "numbers", int: "whole numbers", str: "texts"}


def options_of(wrapper: type) -> dict[str, inspect.Parameter]:
    """A wrapper's options by name, with their annotations resolved; the env is none of them."""
    _env, *rest = inspect.signature(wrapper).parameters.values()
    try:
        hints = get_type_hints(wrapper.__init__)  # type: ignore[misc]
    except (NameError, TypeError):  # annotations that only exist for a type checker
        hints = {}
    return {p.name: p.replace(annotation=hints.get(p.name, Any)) for p in rest}


def check_options(name: str, wrapper: type, given: Mapping[str, Any]) -> None:
    """EnvError where an option is unknown, missing, or of another type."""
    options = options_of(wrapper)
    takes = f"It takes: {', '.join(options) or 'nothing'}."
    is_open = any(p.kind is p.VAR_KEYWORD for p in options.values())
    for key in given:
        if key not in options and not is_open:
            hint = " ".join(filter(None, (did_you_mean(key, options), takes)))
            raise EnvError(f"Wrapper {name}: unknown option {key!r}. {hint}")
    for key, option in options.items():
        is_variable = option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL)
        if key not in given:
            if option.default is option.empty and not is_variable:
                raise EnvError(f"Wrapper {name}: missing a required argument: {key!r}. {takes}")
        elif not is_variable and not fits(option.annotation, given[key]):
            raise EnvError(
                f"Wrapper {name}: {key} must be {in_words(option.annotation)}, got {given[key]!r}."
            )


def fits(annotation: Any, value: Any) -> bool:
    """Whether a value from a config is what an annotation says; true where it says nothing."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(one, value) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and all(fits(arguments[0], v) for v in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(fits(arguments[1], v) for v in value.values())
    if annotation is float:
        return _is_number(value) and bool(np.isfinite(value))
    if annotation is int:
        return _is_number(value) and isinstance(value, int)
    if annotation in (bool, str):
        return isinstance(value, annotation)
    return value is None if annotation is type(None) else True


def in_words(annotation: Any) -> str:
    """What an annotation takes, for people."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(one) for one in arguments)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (list, tuple, Sequence):
        return f"a list of {_PLURALS.get(arguments[0], 'values')}"
    if origin in (dict, Mapping):
        return "a block {name: value}"
    return _WORDS.get(annotation, "any value")


def require(holds: bool, wrapper: str, problem: str) -> None:
    """EnvError with the wrapper's name over what is wrong and how it should be."""
    if not holds:
        raise EnvError(f"Wrapper {wrapper}: {problem}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
