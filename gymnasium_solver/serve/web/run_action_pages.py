"""What the buttons of a run ask: delete, rename, change fields while it trains; its files."""

from collections.abc import Sequence
from typing import Annotated

from starlette.responses import Response

from gymnasium_solver.printable import printable
from gymnasium_solver.runs.edits import ask_pause
from gymnasium_solver.runs.files import read_bytes
from gymnasium_solver.runs.manage import remove, rename, size_of
from gymnasium_solver.runs.resolve import run_name
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.questions import Answer, BadRequest, Fields, OneRun, Runs
from gymnasium_solver.serve.web.handling import Web, attachment
from gymnasium_solver.serve.web.job_pages import begin_job

Selected = Annotated[Sequence[Run], Runs(20_000)]


def delete_runs(web: Web, runs: Selected) -> Answer:
    """For good, unlike the archive."""
    remove(runs)
    return {"deleted": [run.id for run in runs]}


def rename_run(web: Web, run: OneRun, name: str) -> Answer:
    return {"run": rename(run, name.strip()).name}


def files(web: Web, run: OneRun) -> Answer:
    """Bytes of the run's folder, by part; the config as it is in its file."""
    parts = {path.name: size_of(path) for path in run.path.iterdir() if path.is_dir()}
    whole = size_of(run.path)
    return {
        "bytes": whole,
        "parts": {printable(name): size for name, size in parts.items() if size},
        "config": read_bytes(run.config_path, "").decode(errors="replace"),
    }


def log_file(web: Web, run: OneRun) -> Response:
    text = read_bytes(run.log_path, "").decode(errors="replace")
    return attachment(text, f"{run.id}.log", "text/plain")


def change_fields(web: Web, run: OneRun, fields: Fields, trust: bool = False) -> Answer:
    """Change fields while the run trains, as `gsolve set` does: a job that ends when they have
    taken effect, or with the reason why not."""
    trainings.as_flags(fields)  # names and texts, nothing else
    if not fields:
        raise BadRequest("'fields' is empty: no field to change was given")
    words = ["set", run_name(run, web.root), *(f"{n}={text}" for n, text in fields.items())]
    words += ["--source", "web page", "--runs-dir", str(web.root)]
    words += trainings.trust_flags(str(run.config_path), trust)
    return {"job": begin_job(web, "set", *words)}


def pause_run(web: Web, run: OneRun, paused: bool) -> Answer:
    ask_pause(run, paused)
    return {"run": run.id, "paused": paused}


QUESTIONS = {
    "POST /api/runs/delete": delete_runs,
    "POST /api/runs/{run}/rename": rename_run,
    "POST /api/runs/{run}/set": change_fields,
    "POST /api/runs/{run}/pause": pause_run,
    "GET /api/runs/{run}/files": files,
    "GET /api/runs/{run}/log.txt": log_file,
}
