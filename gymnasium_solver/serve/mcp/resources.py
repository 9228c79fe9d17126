"""Runs as resources: what a person attaches to a conversation."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import CLOCK, logged_names
from gymnasium_solver.runs.files import jsonable, read_bytes
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.guide import guide_text
from gymnasium_solver.serve.mcp import facts
from gymnasium_solver.serve.mcp.answers import rounded
from gymnasium_solver.serve.mcp.names import run_named
from gymnasium_solver.serve.mcp.settings import Settings

LISTED = 50
MOST_ROWS = 500


def add_resources(server: MCPServer, settings: Settings) -> None:
    root = settings.root

    def of_run(read: Callable[[Run], str]) -> Callable[[str], str]:
        def resource(run: str) -> str:
            try:
                return printable_lines(read(run_named(run, root)))
            except RunError as error:
                raise ResourceNotFoundError(str(error)) from None
            except (GsolveError, OSError) as error:
                raise ResourceError(str(error)) from None

        return resource

    @server.resource("gsolve://runs", mime_type="application/json")
    def runs() -> str:
        """The newest runs."""
        return _json([facts.row(run) for run in query.list_runs(root)[:LISTED]])

    @server.resource("gsolve://guide", mime_type="text/markdown")
    def guide() -> str:
        """How to train, debug, tune and compare with gymnasium-solver."""
        return guide_text()

    for name, (read, mime) in RUN_RESOURCES.items():
        path = f"gsolve://runs/{{run}}{'' if name == 'summary' else '/' + name}"
        what = f"{name} of a run"
        server.resource(path, name=name, description=what, mime_type=mime)(of_run(read))


def _summary(run: Run) -> str:
    return _json(facts.summary(run) | {"progress": facts.progress(run)})


def _config(run: Run) -> str:
    return dump_yaml(query.get_config(run))


def _report(run: Run) -> str:
    if not run.report_path.exists():
        raise RunError(f"{run.id} has no report yet; it is written at the end")
    return read_bytes(run.report_path, "").decode(errors="replace")


def _log(run: Run) -> str:
    return "\n".join(facts.log_lines(run)[-200:])


def _metrics(run: Run) -> str:
    """CSV of the rows, thinned."""
    rows = query.get_rows(run)
    step = max(1, -(-len(rows) // MOST_ROWS))
    columns = [*CLOCK, *(name for name in logged_names(rows) if name not in CLOCK)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[::step])
    return text.getvalue()


def _json(value: Any) -> str:
    return json.dumps(rounded(jsonable(value)), indent=1)


RUN_RESOURCES: dict[str, tuple[Callable[[Run], str], str]] = {
    "summary": (_summary, "application/json"),
    "config": (_config, "application/yaml"),
    "report": (_report, "text/markdown"),
    "log": (_log, "text/plain"),
    "metrics": (_metrics, "text/csv"),
}
