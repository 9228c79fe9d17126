"""Builds the MCP server from its tools.

build_server(Settings(Path("runs"))).run("stdio")
"""

import inspect
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from gymnasium_solver import __version__
from gymnasium_solver.serve.mcp.answers import guarded, guarded_async
from gymnasium_solver.serve.mcp.control import ControlTools
from gymnasium_solver.serve.mcp.experiments import ExperimentTools
from gymnasium_solver.serve.mcp.pictures import PictureTools
from gymnasium_solver.serve.mcp.prompts import add_prompts
from gymnasium_solver.serve.mcp.publishing import PublishTools
from gymnasium_solver.serve.mcp.read import ReadTools
from gymnasium_solver.serve.mcp.resources import add_resources
from gymnasium_solver.serve.mcp.settings import Settings
from gymnasium_solver.serve.mcp.sql import SqlTools
from gymnasium_solver.suggest import did_you_mean

NAME = "gymnasium-solver"
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
    server = SolverServer(
        NAME,
        title="Gymnasium Solver",
        instructions=INSTRUCTIONS.format(budget=settings.budget()),
        version=__version__,
        log_level="WARNING",
    )
    read, sql, control = ReadTools(settings), SqlTools(settings), ControlTools(settings)
    experiments, pictures = ExperimentTools(control), PictureTools(control)
    reading: list[Callable[..., Any]] = [
        *(read.list_configs, read.get_config, read.list_runs, read.get_run, read.get_metrics),
        *(read.get_logs, read.diagnose, read.compare_runs, pictures.plot, sql.query),
        *(control.wait_for, experiments.get_experiment),
    ]
    for tool in reading:
        _add(server, tool, READS)
    _add(server, pictures.play, READS if settings.is_read_only else ADDS)  # it may keep episodes
    if not settings.is_read_only:
        _add(server, control.start_training, ADDS, settings.budget())
        _add(server, experiments.start_experiment, ADDS)
        _add(server, control.stop_training, STOPS)
        _add(server, control.edit_run, ADDS)
        if settings.allow_publish:
            _add(server, PublishTools(control).publish_run, SENDS)
    add_resources(server, settings)
    add_prompts(server)
    return server


def _add(
    server: SolverServer, tool: Callable[..., Any], annotations: ToolAnnotations, more: str = ""
) -> None:
    is_async = inspect.iscoroutinefunction(tool)
    text = f"{' '.join((tool.__doc__ or '').split())} {more}".strip()
    server.add_tool(
        guarded_async(tool) if is_async else guarded(tool),
        name=tool.__name__,
        description=text,
        annotations=annotations,
        structured_output=False,
    )
    schema = server._tool_manager.get_tool(tool.__name__)
    assert schema is not None
    _shorten(schema.parameters)


def _shorten(schema: dict[str, Any]) -> None:
    """Titles repeat the names: a model pays for them in every conversation."""
    schema.pop("title", None)
    for value in schema.get("properties", {}).values():
        value.pop("title", None)
        if value.get("additionalProperties") is True:
            del value["additionalProperties"]
