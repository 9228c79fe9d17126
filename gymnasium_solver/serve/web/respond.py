"""Answers of the API: JSON, errors of the user as one line, arguments of a request."""

import json
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run

if TYPE_CHECKING:
    from gymnasium_solver.serve.web.app import Web

Handler = Callable[[Request], Awaitable[Response]]
LARGEST_BODY = 1_000_000


class BadRequest(GsolveError):
    """An argument of a request is missing or wrong."""


def json_bytes(value: Any) -> bytes:
    """Strict JSON: what is not finite becomes null."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        finite = _finite(value)
        text = json.dumps(finite, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode(errors="replace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def answer(value: Any, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """An error that the command line would print as one line."""
    return answer({"error": str(error)}, 404 if isinstance(error, RunError) else 400)


def in_thread(work: Callable[[Request], Any]) -> Handler:
    """A handler from a function that reads files and returns JSON types or a response."""

    async def handler(request: Request) -> Response:
        result = await run_in_threadpool(work, request)
        return result if isinstance(result, Response) else answer(result)

    return handler


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was posted."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_BODY:
            raise BadRequest(f"the request is longer than {LARGEST_BODY:,} bytes")
    try:
        value = json.loads(data or b"{}")
    except ValueError as error:
        raise BadRequest(f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the request is not a JSON object")
    return value


def with_body(work: Callable[[Request, dict[str, Any]], Any]) -> Handler:
    """A handler of a POST from a function of the request and its JSON object."""

    async def handler(request: Request) -> Response:
        body = await body_of(request)
        result = await run_in_threadpool(work, request, body)
        return result if isinstance(result, Response) else answer(result)

    return handler


def field(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A field of a posted object, checked; BadRequest if it is missing and has no default."""
    value = body.get(name, default)
    if value is None and default is None and name not in body:
        raise BadRequest(f"{name!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadRequest(f"{name!r} must be {_KINDS.get(kind, kind.__name__)}")
    return value


_KINDS = {str: "text", list: "a list", dict: "an object", int: "a whole number", bool: "a boolean"}


def texts(body: dict[str, Any], name: str) -> list[str]:
    values = field(body, name, list)
    if not all(isinstance(value, str) for value in values):
        raise BadRequest(f"{name!r} must be a list of texts")
    return values


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the query, within bounds."""
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise BadRequest(f"{name}={text!r} is not a whole number")
    return min(max(int(text), low), high)


def web_of(request: Request) -> "Web":
    web: Web = request.app.state.web
    return web


def run_of(request: Request, ref: str | None = None) -> Run:
    """The run that the path names; only an id, or a unique part of one, in the served folder."""
    name = request.path_params["run"] if ref is None else ref
    return resolve_run(name, web_of(request).settings.root, allow_paths=False)


def runs_of(request: Request, name: str = "runs", most: int = 500) -> list[Run]:
    """The runs of a comma-separated argument, each once."""
    refs = [ref for ref in request.query_params.get(name, "").split(",") if ref]
    if not refs:
        raise BadRequest(f"{name!r} is missing: expected ids, separated by commas")
    if len(refs) > most:
        raise BadRequest(f"{len(refs)} runs; at most {most} at once")
    found = {run.id: run for run in (run_of(request, ref) for ref in refs)}
    return list(found.values())
