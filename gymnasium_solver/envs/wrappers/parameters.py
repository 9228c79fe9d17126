"""Checks a wrapper's options against the annotations of its constructor.

    def __init__(self, env: VectorEnv, scale: float = 1.0, kind: Literal["a", "b"] = "a"): ...

takes a finite number and one of two words. Pydantic does the checking, in strict mode: 1 is a
number, "1" and true are not. Options without an annotation take any value.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from gymnasium_solver.config.explain import describe
from gymnasium_solver.errors import EnvError
from gymnasium_solver.suggest import did_you_mean

WrongValue = Callable[[Any, Any], str | None]
"""annotation, value -> what is wrong with it."""
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def options_of(wrapper: type) -> dict[str, inspect.Parameter]:
    """A wrapper's options by name, with resolved annotations. The env is not one of them."""
    _env, *rest = inspect.signature(wrapper).parameters.values()
    try:
        hints = get_type_hints(wrapper.__init__)  # type: ignore[misc]
    except (NameError, TypeError):  # annotations that exist for a type checker only
        hints = {}
    return {p.name: p.replace(annotation=hints.get(p.name, Any)) for p in rest}


def wrong_value(annotation: Any, value: Any) -> str | None:
    """What is wrong with the value of an option; None if it is of the annotated type."""
    if is_valid(annotation, value):
        return None
    return f"must be {words_for(annotation)}, got {value!r}."


def check_options(
    name: str, wrapper: type, given: Mapping[str, Any], wrong: WrongValue = wrong_value
) -> None:
    """EnvError if an option is unknown, missing or of the wrong type."""
    for _, problem in option_problems(name, wrapper, given, wrong):
        raise EnvError(problem)


def option_problems(
    name: str, wrapper: type, given: Mapping[str, Any], wrong: WrongValue = wrong_value
) -> Iterator[tuple[str, str]]:
    """(option, what is wrong with it) for each."""
    options = options_of(wrapper)
    takes = f"It takes: {', '.join(options) or 'nothing'}."
    is_open = any(p.kind is p.VAR_KEYWORD for p in options.values())
    for key in given:
        if key not in options and not is_open:
            hint = " ".join(filter(None, (did_you_mean(key, options), takes)))
            yield key, f"Wrapper {name}: unknown option {key!r}. {hint}"
    for key, option in options.items():
        is_variable = option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL)
        if key not in given:
            if option.default is option.empty and not is_variable:
                yield key, f"Wrapper {name}: missing a required argument: {key!r}. {takes}"
        elif not is_variable and (problem := wrong(option.annotation, given[key])):
            yield key, f"Wrapper {name}: {key} {problem}"


def words_for(annotation: Any) -> str:
    """The values that an annotation takes, in words."""
    try:
        schema = _adapter(annotation).json_schema()
    except PydanticUserError:  # a class of the user's own
        return f"a {getattr(annotation, '__name__', annotation)}"
    return describe(schema) if schema else "any value"


def require(holds: bool, wrapper: str, problem: str) -> None:
    """EnvError that names the wrapper and the problem, unless `holds`."""
    if not holds:
        raise EnvError(f"Wrapper {wrapper}: {problem}.")


@lru_cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=_STRICT)


def is_valid(annotation: Any, value: Any) -> bool:
    """Whether a value is of the annotated type. A YAML list may stand for a tuple, and from Python
    a tuple for a list."""
    forms = [value]
    if isinstance(value, list | tuple):
        forms.append(tuple(value) if isinstance(value, list) else list(value))
    return any(_accepts(annotation, form) for form in forms)


def _accepts(annotation: Any, value: Any) -> bool:
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True
