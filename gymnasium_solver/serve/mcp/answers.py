"""Questions as tools of the SDK, and the form of every answer: short text for a model, the same as
structured data, and images."""

import base64
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_type_hints

import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs.files import jsonable
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.questions import Question, arguments, given_kind

LONGEST = 40_000  # characters, about 10,000 tokens: clients cut at 25,000


class Pictured(NamedTuple):
    """An answer with PNG files."""

    data: dict[str, Any]
    images: Sequence[bytes]


def as_tool(
    question: Question, desk: AgentDesk, changes: Callable[[dict[str, Any]], bool]
) -> Callable[..., Any]:
    """What the SDK calls. `changes` tells from the arguments whether the question changes
    something. Errors that are meant for users reach the model; anything else is a crash of the
    server."""
    in_thread = anyio.to_thread.run_sync

    async def call(ctx: Context, **given: Any) -> CallToolResult:
        try:
            asked = await in_thread(arguments, question, desk, given)
            ask = functools.partial(question, desk, **asked)
            if changes(asked):
                ask = functools.partial(desk.change, ctx, question.__name__, given, ask)
            is_async = inspect.iscoroutinefunction(question)
            return as_result(await ask() if is_async else await in_thread(ask))
        except (GsolveError, OSError) as error:
            raise ToolError(printable_lines(error)) from None

    hints = get_type_hints(question)
    own, taken = (inspect.signature(one).parameters for one in (call, question))
    shown = [one.replace(annotation=given_kind(hints[one.name])) for one in taken.values()][1:]
    call.__signature__ = inspect.Signature([own["ctx"], *shown])  # type: ignore[attr-defined]
    return call


def as_result(found: dict[str, Any] | Pictured) -> CallToolResult:
    data, images = found if isinstance(found, Pictured) else (found, ())
    short = rounded(jsonable(data))
    text = printable_lines("\n".join(lines_of(short)))
    if len(text) > LONGEST:
        text = text[:LONGEST] + "\n... (cut; ask for less)"
        short = {"cut": True, "text": text}
    pictures = [
        ImageContent(type="image", data=base64.b64encode(png).decode(), mime_type="image/png")
        for png in images
    ]
    return CallToolResult(
        content=[TextContent(type="text", text=text), *pictures], structured_content=short
    )


def rounded(value: Any) -> Any:
    """Floats to six significant digits: more only costs tokens."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def lines_of(value: Any, indent: str = "") -> list[str]:
    """A JSON value as compact text: `key: value` lines, and tables for lists of records."""
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if _is_flat(item):
                lines.append(f"{indent}{key}: {_flat(item)}")
            else:
                lines += [f"{indent}{key}:", *lines_of(item, indent + "  ")]
        return lines
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        columns = list(dict.fromkeys(key for row in value for key in row))
        cells = [columns, *([_flat(row.get(column)) for column in columns] for row in value)]
        return [indent + " | ".join(row) for row in cells]
    return [f"{indent}{_flat(item)}" for item in (value if isinstance(value, list) else [value])]


def _is_flat(value: Any) -> bool:
    if isinstance(value, dict):
        return not value
    if isinstance(value, list):
        is_nested = any(isinstance(item, dict | list) for item in value)
        return not is_nested and sum(len(str(item)) for item in value) < 400
    return True


def _flat(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_flat(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_flat(item) for item in value) or "-"
    return str(value)
