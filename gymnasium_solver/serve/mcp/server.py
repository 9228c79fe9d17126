"""Builds the MCP server from its tools, and serves it over HTTP.

    build_server(Settings(Path("runs"))).run("stdio")

A question is a tool of the SDK; every answer is short text for a model, and images; for programs
also the same as structured data. Over HTTP, Host, Origin and bearer token are checked before
anything else.
"""

import base64
import functools
import hmac
import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import anyio.to_thread
import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs.files import jsonable
from gymnasium_solver.serve.mcp import metric_tools, read_tools, training_tools
from gymnasium_solver.serve.mcp.allowed import AgentDesk, Pictured, Settings, rounded
from gymnasium_solver.serve.mcp.resources import add_resources
from gymnasium_solver.serve.questions import Question, arguments, given_kind
from gymnasium_solver.serve.web.security import is_loopback
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.version import __version__

NAME = "gymnasium-solver"
PATH = "/mcp"
LONGEST = 40_000  # characters, about 10,000 tokens: clients cut at 25,000
INSTRUCTIONS = """\
Trains and studies reinforcement-learning agents in Gymnasium environments. A run is @last, an id
or a unique part of one; of a search SEARCH/trials/0007/seed0. env_steps is the only clock. Solved
means that the held-out test reached the threshold; the best validation score is too high. One seed
proves nothing: start_experiment trains several, compare_runs says when it cannot tell. To debug,
begin with diagnose; look at plot and play. Trainings run in the background: start_training, then
wait_for again and again. {budget}"""

# What is left out has the default of the protocol, or does not matter.
READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
STOPS = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
SENDS = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
READING = (
    read_tools.list_configs, read_tools.get_config, read_tools.list_runs, read_tools.get_run,
    metric_tools.get_metrics, read_tools.get_logs, read_tools.diagnose, read_tools.compare_runs,
    read_tools.plot, read_tools.evaluate, read_tools.open_ui, metric_tools.query,
    training_tools.wait_for, training_tools.get_experiment,
)  # fmt: skip
CHANGING: dict[Question, types.ToolAnnotations] = {
    training_tools.start_training: ADDS,
    training_tools.start_experiment: ADDS,
    training_tools.stop_training: STOPS,
    training_tools.edit_run: ADDS,
    training_tools.save_config: ADDS,
    training_tools.export: ADDS,
}


# --- questions as tools


def as_tool(question: Question, desk: AgentDesk, changes: bool) -> Callable[..., Any]:
    """What the SDK calls; `changes`: whether the question changes something. Errors that are meant
    for users reach the model; anything else is a crash of the server."""
    in_thread = anyio.to_thread.run_sync

    async def call(ctx: Context, **given: Any) -> types.CallToolResult:
        try:
            asked = await in_thread(arguments, question, desk, given)
            ask = functools.partial(question, desk, **asked)
            is_change = changes
            if question is read_tools.play:  # also on a read-only server, which then refuses it
                is_change = asked["keep"] and not asked["episode"]
            if is_change:
                ask = functools.partial(desk.change, ctx, question.__name__, given, ask)
            is_async = inspect.iscoroutinefunction(question)
            found = await ask() if is_async else await in_thread(ask)
            return as_result(found, desk.settings.is_structured)
        except (GsolveError, OSError) as error:
            raise ToolError(printable_lines(error)) from None

    hints = get_type_hints(question)
    own, taken = (inspect.signature(one).parameters for one in (call, question))
    shown = [one.replace(annotation=given_kind(hints[one.name])) for one in taken.values()][1:]
    call.__signature__ = inspect.Signature([own["ctx"], *shown])  # type: ignore[attr-defined]
    return call


def as_result(found: dict[str, Any] | Pictured, is_structured: bool) -> types.CallToolResult:
    """An answer as text and images; `is_structured`: also as JSON, which says the same again."""
    data, images = found if isinstance(found, Pictured) else (found, ())
    short = rounded(jsonable(data))
    text = printable_lines("\n".join(lines_of(short)))
    if len(text) > LONGEST:
        text = text[:LONGEST] + "\n... (cut; ask for less)"
        short = {"cut": True, "text": text}
    pictures = [
        types.ImageContent(type="image", data=base64.b64encode(png).decode(), mime_type="image/png")
        for png in images
    ]
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text), *pictures],
        structured_content=short if is_structured else None,
    )


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


# --- the server


class SolverServer(MCPServer[Any]):
    """Arguments that a tool does not have are errors, and errors are short."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        tools = {tool.name: tool for tool in self._tool_manager.list_tools()}
        if name not in tools:
            raise ToolError(f"there is no tool {name[:60]!r}. {did_you_mean(name, tools)}".strip())
        known = tools[name].parameters.get("properties", {})
        if unknown := [key for key in arguments if key not in known]:
            hint = did_you_mean(unknown[0], known) or f"It takes {', '.join(known) or 'none'}."
            raise ToolError(f"{name} has no argument {unknown[0][:60]!r}. {hint}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(wrong := error.__cause__, ValidationError):
                # One line each, without the values: they may be long.
                said = wrong.errors(include_url=False, include_input=False, include_context=False)
                lines = [f"{'.'.join(map(str, e['loc']))[:80]}: {e['msg'][:200]}" for e in said[:5]]
                raise ToolError(f"{name}: {'; '.join(lines)}") from wrong
            text = str(error).removeprefix(f"Error executing tool {name}: ")
            if text == str(error):
                raise
            raise ToolError(text) from error.__cause__


def build_server(settings: Settings) -> SolverServer:
    desk = AgentDesk(settings)
    server = SolverServer(
        NAME,
        title="Gymnasium Solver",
        instructions=INSTRUCTIONS.format(budget=settings.budget()),
        version=__version__,
        log_level="WARNING",
    )
    tools: dict[Question, types.ToolAnnotations] = dict.fromkeys(READING, READS)
    tools[read_tools.play] = READS if settings.is_read_only else ADDS  # it may keep episodes
    if not settings.is_read_only:
        tools |= CHANGING | ({training_tools.publish_run: SENDS} if settings.allow_publish else {})
    for tool, annotations in tools.items():
        server.add_tool(
            as_tool(tool, desk, not annotations.read_only_hint),
            name=tool.__name__,
            description=" ".join((tool.__doc__ or "").split()),
            annotations=annotations,
            structured_output=False,
        )
        added = server._tool_manager.get_tool(tool.__name__)
        assert added is not None
        _shorten(added.parameters)
    add_resources(server, desk)
    return server


def _shorten(schema: dict[str, Any]) -> None:
    """Drop what repeats names or says nothing: a model pays for it in every conversation."""
    schema.pop("title", None)
    for one in schema.get("properties", {}).values():
        one.pop("title", None)
        if one.get("additionalProperties") is True:
            del one["additionalProperties"]
        if one.get("default") in ("", [], {}, 0, -1):  # nothing; also False
            del one["default"]


# --- over HTTP


def http_app(
    server: SolverServer, settings: Settings, host: str, port: int, names: Sequence[str] = ()
) -> ASGIApp:
    """`names`: host names under which clients reach the server, besides `host`. Only these reach
    it: a web page that resolves its own name to this machine does not. `names` may have a port of
    their own."""
    own = ["127.0.0.1", "localhost", "[::1]"] if is_loopback(host) else []
    if not is_loopback(host) and host not in ("0.0.0.0", "::"):
        own.append(f"[{host}]" if ":" in host else host)
    # Behind a proxy the Host of a client has no port.
    hosts = [*(f"{name}:{port}" for name in (*own, *names)), *names]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{name}" for name in hosts for scheme in ("http", "https")],
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=host,
        transport_security=security,
    )

    async def with_token(scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses a wrong token always, and a missing one where other machines can connect."""
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if not given:
            is_allowed = settings.token is None or is_loopback(host)
        else:
            expected = f"Bearer {settings.token}".encode()
            is_known = settings.token is not None and len(given) == 1
            is_allowed = is_known and hmac.compare_digest(given[0], expected)
        if is_allowed or scope["type"] != "http":
            await app(scope, receive, send)
            return
        response = PlainTextResponse(
            "a valid bearer token is required", 401, {"WWW-Authenticate": "Bearer"}
        )
        await response(scope, receive, send)

    return with_token
