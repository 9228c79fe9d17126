"""Error messages for invalid configs: one line per problem, with a suggestion.

`explain` turns pydantic's ValidationError into lines such as

    learning_rate: unknown field. Did you mean policy_lr?
    n_envs: got 0, expected a whole number >= 1 or 'auto'
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from gymnasium_solver.config.foreign import FOREIGN, NOTES, foreign_names, our_names
from gymnasium_solver.registry import algorithms, config_class
from gymnasium_solver.suggest import ask, nearest


def explain(model: type[BaseModel], error: ValidationError, data: Mapping[str, Any]) -> str:
    """One line for each invalid field of `data`."""
    lines: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        # A union reports each of its branches; one line per field is enough.
        field = str(problem["loc"][0]) if problem["loc"] else ""
        if field not in lines:
            lines[field] = _line(model, field, problem, data)
    return "\n".join(lines.values())


def describe(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words: "a whole number >= 1 or 'auto'"."""
    if "x-expected" in schema:
        return str(schema["x-expected"])
    if "anyOf" in schema:
        return " or ".join(describe(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(_show(option) for option in schema["enum"])
    if "const" in schema:
        return _show(schema["const"])
    names = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "true or false",
        "null": "null",
        "object": "a block of key: value lines",
        "array": "a list",
    }
    text = names.get(schema.get("type", ""), "another value")
    if schema.get("type") == "array" and schema.get("items"):
        items = describe(schema["items"])
        plural = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts"}
        text += f" of {plural[items]}" if items in plural else f", each {items}"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {_bound(schema[key])}" for key, sign in signs.items() if key in schema]
    return " ".join([text, " and ".join(bounds)]).strip()


def _bound(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else f"{value:g}"


def _line(
    model: type[BaseModel], field: str, problem: Mapping[str, Any], data: Mapping[str, Any]
) -> str:
    if problem["type"] == "extra_forbidden":
        return f"{field}: unknown field{_suggestion(model, field)}"
    if problem["type"] == "missing":
        return f"{field}: required, but not given"
    reason = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
    if not field:
        return reason or str(problem["msg"])
    # Inside a list or a union the input is a part of the value; show the whole value.
    given = problem["input"] if len(problem["loc"]) == 1 else data.get(field, problem["input"])
    if not reason:
        reason = f"expected {describe(model.model_json_schema()['properties'][field])}"
    return f"{field}: got {_show(given)}, {reason}{_hint(given)}"


def _hint(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    try:
        float(given)
    except ValueError:
        return " (write true or false)" if given.lower() in ("yes", "no", "on", "off") else ""
    return " (this is text: remove the quotes)"


def _suggestion(model: type[BaseModel], field: str) -> str:
    known = set(model.model_fields)
    ours = our_names(field, known)
    if not ours and not (field in NOTES and field not in FOREIGN):
        owners = [name for name in algorithms.names() if field in config_class(name).model_fields]
        if owners:
            return f" here; it belongs to {', '.join(owners)}"
        close = nearest(field, [*known, *foreign_names(known)], n=1)
        ours = [name for match in close for name in our_names(match, known) or [match]]
    hint = " ".join(filter(None, (ask(ours), NOTES.get(field))))
    return f". {hint}" if hint else ""


def _show(value: Any) -> str:
    """A value as YAML would write it, cut to a readable length."""
    names = {None: "null", True: "true", False: "false"}
    text = names[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
