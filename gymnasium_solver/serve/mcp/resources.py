"""What a person attaches to a conversation or picks in the client: runs as resources, the guide,
prompts for the usual jobs."""

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
from gymnasium_solver.serve import guide_text
from gymnasium_solver.serve.mcp.answers import rounded
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
    "config": (lambda run: dump_yaml(query.get_config(run)), "application/yaml"),
    "report": (_report, "text/markdown"),
    "log": (lambda run: "\n".join(log_lines(run)[-200:]), "text/plain"),
    "metrics": (_metrics, "text/csv"),
}


def debug_run(run: str) -> str:
    """Find out why a run does not learn, and fix it."""
    return f"""Debug the training run {run} with the tools of gymnasium-solver.

1. diagnose("{run}"): active problems, score against random actions and threshold, trends.
2. plot(["{run}"]) and look at the curves; get_metrics with names for what is suspicious, with
   around for the env step where it broke; get_logs if it failed.
3. play("{run}") and look at the frames: does the agent do something sensible?
4. get_run("{run}", ["config", "hyperparams"]): which fields differ from the shipped config, and
   get_config(..., explain=[...]) for what they mean.
5. State the most likely cause with the evidence, then one change that tests it. Ask before
   start_training. Compare with compare_runs against the old run; one seed proves nothing.
"""


def tune_config(config: str, budget: str = "10 trainings") -> str:
    """Improve the hyper-parameters of a config within a budget."""
    return f"""Tune {config} with the tools of gymnasium-solver. Budget: {budget}.

1. get_config("{config}") and list_runs(filter="env=...", sort="test"): what was tried already.
2. Train the config as it is first, with four seeds: that is the baseline.
3. Change one thing at a time, the most influential first: policy_lr, n_steps and batch_size,
   ent_coef or exploration, gamma, network size. Tag every run with tags=["tune"].
4. diagnose each run and read its problems before choosing the next change.
5. Judge by compare_runs over at least four seeds a side. It says "cannot tell" if the seeds do
   not show a difference: believe it.
6. Report the best overrides, the scores with their intervals, and what did not help.
"""


def beat_score(config: str, score: str) -> str:
    """Reach a score in an environment."""
    return f"""Reach a held-out test score of {score} on {config} with gymnasium-solver.

1. list_runs(filter="env=...", sort="test", limit=5): is there a run that already does?
2. list_configs for the same environment: which algorithms have a tuned config?
3. start_training with the most promising one; wait_for(until="evaluation"), and stop_training when
   its curve clearly cannot reach {score} within the budget.
4. If it falls short, diagnose, plot and play; then change what they point at, or the algorithm.
5. The score counts only as a test (get_run: test), not as the best validation. Confirm it with
   four seeds before claiming it.
"""
