"""The form of every answer: short text for a model, the same as structured data, and images.

answer({"runs": [...], "total": 12})
"""

import base64
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs.files import jsonable

MOST = 200  # items of a list
LONGEST = 40_000  # characters, about 10,000 tokens: clients cut at 25,000
Function = TypeVar("Function", bound=Callable[..., Any])


def answer(data: Mapping[str, Any], images: Sequence[bytes] = ()) -> CallToolResult:
    """A result of a tool. `images` are PNG files."""
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


def bounded(limit: int) -> int:
    """How many items of a list are returned."""
    return max(1, min(limit, MOST))


def guarded(tool: Function) -> Function:
    """Errors that are meant for users reach the model; anything else is a crash of the server."""

    @functools.wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except (GsolveError, OSError) as error:
            raise ToolError(printable_lines(error)) from None

    return call  # type: ignore[return-value]


def guarded_async(tool: Function) -> Function:
    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except (GsolveError, OSError) as error:
            raise ToolError(printable_lines(error)) from None

    return call  # type: ignore[return-value]


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
        return _table(value, indent)
    if isinstance(value, list):
        return [f"{indent}{_flat(item)}" for item in value]
    return [f"{indent}{_flat(value)}"]


def _table(rows: list[dict[str, Any]], indent: str) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [indent + " | ".join(columns)]
    for row in rows:
        lines.append(indent + " | ".join(_flat(row.get(column)) for column in columns))
    return lines


def _is_flat(value: Any) -> bool:
    if isinstance(value, dict):
        return not value
    if isinstance(value, list):
        return all(not isinstance(item, dict | list) for item in value) and _is_short(value)
    return True


def _is_short(items: list[Any]) -> bool:
    return sum(len(str(item)) for item in items) < 400


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
