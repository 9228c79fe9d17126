"""What a person attaches to a conversation or picks in the client: runs as resources, the guide,
prompts for the usual jobs."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import write_csv
from gymnasium_solver.runs.files import jsonable, read_bytes
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve import guide_text
from gymnasium_solver.serve.mcp.allowed import rounded
from gymnasium_solver.serve.mcp.read_tools import log_lines, progress, row, summary
from gymnasium_solver.serve.questions import Desk

LISTED = 50
MOST_ROWS = 500


def add_resources(server: MCPServer, desk: Desk) -> None:
    def of_run(read: Callable[[Run], str]) -> Callable[[str], str]:
        def resource(run: str) -> str:
            try:
                return printable_lines(read(desk.run(run)))
            except RunError as error:
                raise ResourceNotFoundError(str(error)) from None
            except (GsolveError, OSError) as error:
                raise ResourceError(str(error)) from None

        return resource

    @server.resource("gsolve://runs", mime_type="application/json")
    def runs() -> str:
        """The newest runs."""
        return _json([row(run) for run in desk.store.runs()[:LISTED]])

    @server.resource("gsolve://guide", mime_type="text/markdown")
    def guide() -> str:
        """How to train, debug, tune and compare with gymnasium-solver."""
        return guide_text()

    for name, (read, mime) in RUN_RESOURCES.items():
        path = f"gsolve://runs/{{run}}{'' if name == 'summary' else '/' + name}"
        what = f"{name} of a run"
        server.resource(path, name=name, description=what, mime_type=mime)(of_run(read))
    for prompt in (debug_run, tune_config, beat_score):
        server.prompt()(prompt)


def _summary(run: Run) -> str:
    found = query.get_run(run)
    return _json(summary(found) | {"progress": progress(found)})


def _report(run: Run) -> str:
    if not run.report_path.exists():
        raise RunError(f"{run.id} has no report yet; it is written at the end")
    return read_bytes(run.report_path, "").decode(errors="replace")


def _metrics(run: Run) -> str:
    """CSV of the rows, thinned."""
    rows, text = query.get_rows(run), io.StringIO()
    write_csv(rows[:: max(1, -(-len(rows) // MOST_ROWS))], text)
    return text.getvalue()


def _json(value: Any) -> str:
    return json.dumps(rounded(jsonable(value)), indent=1)


RUN_RESOURCES: dict[str, tuple[Callable[[Run], str], str]] = {
    "summary": (_summary, "application/json"),
    "config": (lambda run: dump_yaml(query.get_config(run)), "application/yaml"),
    "report": (_report, "text/markdown"),
    "log": (lambda run: "\n".join(log_lines(run)[-200:]), "text/plain"),
    "metrics": (_metrics, "text/csv"),
}


def debug_run(run: str) -> str:
    """Find out why a run does not learn, and fix it."""
    return _prompt("debug_run", run=run)


def tune_config(config: str, budget: str = "10 trainings") -> str:
    """Improve the hyper-parameters of a config within a budget."""
    return _prompt("tune_config", config=config, budget=budget)


def beat_score(config: str, score: str) -> str:
    """Reach a score in an environment."""
    return _prompt("beat_score", config=config, score=score)


def _prompt(name: str, **given: str) -> str:
    """A section of prompts.md, with what was given in its place."""
    text = Path(__file__).with_name("prompts.md").read_text(encoding="utf-8")
    section = text.partition(f"# {name}\n\n")[2].partition("\n# ")[0]
    return re.sub(r"\{(\w+)\}", lambda word: given[word[1]], section)
