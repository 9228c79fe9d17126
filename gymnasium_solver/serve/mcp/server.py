"""Builds the MCP server from its tools, and serves it over HTTP.

    build_server(Settings(Path("runs"))).run("stdio")

Over HTTP, Host, Origin and bearer token are checked before anything else.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gymnasium_solver.serve.mcp.allowed import AgentDesk, Settings
from gymnasium_solver.serve.mcp.answers import as_tool
from gymnasium_solver.serve.mcp.metric_tools import get_metrics
from gymnasium_solver.serve.mcp.play_tools import play, plot
from gymnasium_solver.serve.mcp.read_tools import (
    compare_runs,
    diagnose,
    get_config,
    get_logs,
    get_run,
    list_configs,
    list_runs,
)
from gymnasium_solver.serve.mcp.resources import add_resources
from gymnasium_solver.serve.mcp.sql_tools import query
from gymnasium_solver.serve.mcp.training_tools import (
    edit_run,
    get_experiment,
    publish_run,
    start_experiment,
    start_training,
    stop_training,
    wait_for,
)
from gymnasium_solver.serve.questions import Question
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.version import __version__

NAME = "gymnasium-solver"
PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
INSTRUCTIONS = """\
Trains and studies reinforcement-learning agents in Gymnasium environments. A run is @last, an id or
a unique part of one. env_steps is the only clock. Solved means that the held-out test reached the
threshold; the best validation score is too high. One seed proves nothing: compare_runs says when it
cannot tell. To debug, begin with diagnose; look at plot and play. Trainings run in the background:
start_training, then wait_for again and again. {budget}"""

READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
STOPS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
SENDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
READING = (
    list_configs, get_config, list_runs, get_run, get_metrics, get_logs, diagnose, compare_runs,
    plot, query, wait_for, get_experiment,
)  # fmt: skip
CHANGING: dict[Question, ToolAnnotations] = {
    start_training: ADDS,
    start_experiment: ADDS,
    stop_training: STOPS,
    edit_run: ADDS,
}


class SolverServer(MCPServer[Any]):
    """Arguments that a tool does not have are errors, and errors are short."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
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
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_short(name, error.__cause__)) from error.__cause__
            text = str(error).removeprefix(f"Error executing tool {name}: ")
            if text == str(error):
                raise
            raise ToolError(text) from error.__cause__


def _short(tool: str, error: ValidationError) -> str:
    """Wrong arguments, one line each, without the values: they may be long."""
    lines = [
        f"{'.'.join(str(part) for part in item['loc'])[:80]}: {item['msg'][:200]}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]
    ]
    return f"{tool}: " + "; ".join(lines)


def build_server(settings: Settings) -> SolverServer:
    budget, desk = settings.budget(), AgentDesk(settings)
    server = SolverServer(
        NAME,
        title="Gymnasium Solver",
        instructions=INSTRUCTIONS.format(budget=budget),
        version=__version__,
        log_level="WARNING",
    )
    tools: dict[Question, ToolAnnotations] = dict.fromkeys(READING, READS)
    tools[play] = READS if settings.is_read_only else ADDS  # it may keep episodes
    if not settings.is_read_only:
        tools |= CHANGING | ({publish_run: SENDS} if settings.allow_publish else {})
    for tool, annotations in tools.items():
        more = budget if tool is start_training else ""
        server.add_tool(
            as_tool(tool, desk, _changes(tool, annotations)),
            name=tool.__name__,
            description=f"{' '.join((tool.__doc__ or '').split())} {more}".strip(),
            annotations=annotations,
            structured_output=False,
        )
        added = server._tool_manager.get_tool(tool.__name__)
        assert added is not None
        # Titles repeat the names: a model pays for them in every conversation.
        for schema in (added.parameters, *added.parameters.get("properties", {}).values()):
            schema.pop("title", None)
            if schema is not added.parameters and schema.get("additionalProperties") is True:
                del schema["additionalProperties"]
    add_resources(server, desk)
    return server


def _changes(tool: Question, annotations: ToolAnnotations) -> Callable[[dict[str, Any]], bool]:
    if tool is play:
        return lambda asked: bool(asked["keep"] and not asked["episode"])
    return lambda asked: not annotations.read_only_hint


# --- over HTTP


def is_loopback(host: str) -> bool:
    return host in LOOPBACK


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
