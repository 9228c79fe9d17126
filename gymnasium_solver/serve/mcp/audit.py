"""Who changed what over MCP: `.mcp-log.jsonl` in the folder of the runs, one line before and one
after each change."""

import getpass
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context

from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import json_bytes, jsonable
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import utc_now

LOG = ".mcp-log.jsonl"
_writing = threading.Lock()


@contextmanager
def audited(
    root: Path, ctx: Context, tool: str, arguments: Mapping[str, Any], transport: str
) -> Iterator[dict[str, Any]]:
    """Log a change. The block may add what it did to the dict that it is given."""
    change = secrets.token_hex(4)
    given = {key: value for key, value in arguments.items() if value not in ("", [], {}, None)}
    _append(root, {"change": change, "tool": tool, "arguments": given, "who": who(ctx, transport)})
    outcome: dict[str, Any] = {}
    try:
        yield outcome
    except BaseException as error:
        _append(root, {"change": change, "error": str(error)[:500] or type(error).__name__})
        raise
    _append(root, {"change": change, "outcome": outcome})


def who(ctx: Context, transport: str) -> dict[str, Any]:
    """The client as it names itself, and the process that serves it."""
    try:
        params = ctx.request_context.session.client_params
    except (AttributeError, ValueError):
        params = None
    info = None if params is None else params.client_info
    return {
        "client": "unnamed" if info is None else f"{info.name} {info.version}"[:120],
        "transport": transport,
        "user": _user(),
        "host": machine.hostname(),
        "server_pid": os.getpid(),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _append(root: Path, entry: Mapping[str, Any]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    line = json_bytes(jsonable({"at": utc_now(), **entry}))
    with _writing, (root / LOG).open("ab", buffering=0) as file:
        file.write(line)  # one write: lines of two servers do not mix


def entries(root: Path) -> list[dict[str, Any]]:
    return read_jsonl(root / LOG)
