"""Error messages for invalid `spec` blocks: one line per problem, with its place.

spec.action_space.lables: unknown key. Did you mean labels?
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from gymnasium_solver.suggest import did_you_mean

_KINDS = {
    "string_type": "text",
    "dict_type": "a block of key: value lines",
    "model_type": "a block of key: value lines",
    "list_type": "a list",
    "tuple_type": "a pair [lowest, highest]",
    "too_long": "a pair [lowest, highest]",
    "missing_item": "a pair [lowest, highest]",
    "float_type": "a number",
    "int_type": "a whole number",
}


def problems(
    error: ValidationError,
    block: Mapping[str, Any],
    model_at: Callable[[list[str]], type[BaseModel]],
) -> Iterator[str]:
    """The lines. `model_at` returns the model of the block at a place, for its keys."""
    expected: dict[str, list[str]] = {}  # a union reports what each of its branches expects
    for problem in error.errors(include_url=False):
        keys, value = _place(problem["loc"], block)
        where = ".".join(("spec", *keys))
        if problem["type"] == "extra_forbidden":
            yield f"{where}: unknown key{or_list(keys[-1], model_at(keys[:-1]).model_fields)}"
        elif problem["type"] == "missing":
            yield f"{where}: needs a {problem['loc'][-1]}"
        elif problem["type"] == "value_error":
            yield f"{where}: {problem['ctx']['error']}"
        else:
            wanted = expected.setdefault(f"{where}: got {value!r}", [])
            wanted.append(_KINDS.get(problem["type"], "another value"))
    for given, wanted in expected.items():
        yield f"{given}, expected {' or '.join(dict.fromkeys(wanted))}"


def _place(loc: tuple[int | str, ...], block: Any) -> tuple[list[str], Any]:
    """The keys of `loc` that the user wrote (a union adds the names of its branches), and the value
    there."""
    keys: list[str] = []
    for key in loc:
        if isinstance(block, Mapping):
            found = next((name for name in block if str(name) == str(key)), None)
            if found is None:
                break
            block = block[found]
        elif isinstance(block, list) and isinstance(key, int):
            block = block[key]
        else:
            continue
        keys.append(str(key))
    return keys, block


def or_list(name: str, known: Iterable[str]) -> str:
    """A suggestion, or the list of known names if none is similar."""
    names = list(known)
    hint = did_you_mean(name, names) or (f"There are: {', '.join(names)}." if names else "")
    return f". {hint}" if hint else ""
