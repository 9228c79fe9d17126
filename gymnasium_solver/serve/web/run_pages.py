"""What the page of a run asks: all but its curves, its files, log and videos; streams; what a page
may do here; and the buttons that delete and rename runs and change fields while one trains."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response, StreamingResponse

from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable, printable_lines
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import advised_changes
from gymnasium_solver.runs.edits import ask_pause
from gymnasium_solver.runs.files import finite, picked, read_bytes
from gymnasium_solver.runs.manage import read_labels, remove, rename, size_of
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.resolve import run_name
from gymnasium_solver.runs.run import Run, is_alive_here
from gymnasium_solver.runs.words import next_steps, result_rows, train_command
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.questions import Answer, BadRequest, Fields, ManyRuns, OneRun, SomeRuns
from gymnasium_solver.serve.web.handling import Web, answer, attachment
from gymnasium_solver.serve.web.job_pages import begin_job, find_job
from gymnasium_solver.serve.web.stream import changes_of, follow_text, lines_of
from gymnasium_solver.version import __version__

_STEPS = re.compile(r"\d+")
EVALUATION = (
    "stage", "at", "env_steps", "epoch", "mean", "std", "stderr", "min", "max", "episodes",
    "length_mean", "success", "greedy", "checkpoint", "changed", "seed",
)  # fmt: skip
EDIT = ("env_steps", "changed", "before", "source", "text")
"""Of a change of fields while the run trained, or at a resume."""
ABOUT_METRIC = "label description better group unit priority"


def session(web: Web) -> Answer:
    """What the page may do here."""
    return {
        "version": __version__,
        "root": str(web.root),
        "read_only": web.settings.read_only,
        # A page of another origin cannot read this answer, and another Host is refused.
        "token": web.settings.token,
    }


def login(web: Web) -> Response:
    """The token becomes a cookie; the middleware has checked it."""
    settings = web.settings
    response = answer({"ok": True})
    response.set_cookie(
        settings.cookie, settings.token, httponly=True, samesite="strict",
        path=settings.base_path + "/",
    )  # fmt: skip
    return response


def one_run(web: Web, run: OneRun) -> Answer:
    details = query.get_details(run)
    meta = details.meta
    summary = replace(details.summary, id=run_name(run, web.root))
    rows, why = result_rows(summary, details.tests, details.score)
    table = web.tables.of(run)
    config = None
    with suppress(RunError):
        config = web.config_of(run)
    return {
        "summary": summary.to_dict() | {"path": None},
        "is_alive": is_alive_here(meta),
        "note": printable_lines(_note(run)),
        "result": rows,
        "why": why,
        "config": config,
        "changed": meta["changed"] if isinstance(meta.get("changed"), dict) else None,
        "machine": meta["machine"] | {"pid": meta.get("pid")},
        "command": [printable(word) for word in meta["command"]],
        **picked(meta, "versions git resumed"),
        "alerts": [
            alert.to_dict() | {"changes": advised_changes(alert.advice, config or {})}
            for alert in details.alerts
        ],
        "evaluations": [
            {name: event[name] for name in EVALUATION if name in event}
            for event in details.evaluations
        ],
        "changes": [
            {name: event[name] for name in ("kind", *EDIT) if name in event}
            for event in details.events
            if event.get("kind") in ("config", "config_refused")
        ],
        "metrics": [
            {"name": printable(name), "last": table.last(name)}
            | picked(describe(name), ABOUT_METRIC)
            for name in table.names
        ],
        "videos": _videos(run),
        "commands": [*next_steps(summary), train_command(summary)],
    }


def _note(run: Run) -> str:
    with suppress(RunError):  # a damaged file has no note
        return read_labels(run).note
    return ""


def returns(web: Web, run: OneRun) -> Answer:
    """The returns of the single episodes of each evaluation."""
    evaluations = [
        picked(event, "stage env_steps greedy")
        | {"returns": [r for r in map(finite, event["returns"]) if r is not None]}
        for event in query.get_events(run, "eval")
        if isinstance(event.get("returns"), list)
    ]
    return {"evaluations": [one for one in evaluations if one["returns"]]}


def log(web: Web, run: OneRun, cursor: str | None = None) -> Answer:
    return follow_text(run.log_path, cursor)


def _videos(run: Run) -> list[dict[str, Any]]:
    """The newest first, with the checkpoint that it shows if its name or the log says so."""
    told = {Path(str(event.get("path"))).name: event for event in query.get_events(run, "video")}
    found = []
    for path in query.get_videos(run):
        event, digits, status = told.get(path.name, {}), _STEPS.search(path.stem), path.stat()
        steps = event.get("env_steps")
        found.append(
            {"name": path.name, "bytes": status.st_size, "changed_s": status.st_mtime}
            | {"kind": query.MEDIA_TYPES[path.suffix.lower()]}
            | {"env_steps": steps or (int(digits[0]) if digits else None)}
            | {name: finite_numbers(event.get(name)) for name in ("returns", "seed")}
        )
    return sorted(found, key=lambda one: float(one["changed_s"]), reverse=True)


def finite_numbers(value: Any) -> Any:
    """A number or a list of them, as a file may hold it; None for anything else."""
    if isinstance(value, list):
        return [number for one in value[:16] if (number := finite(one)) is not None]
    return finite(value)


def video(web: Web, run: OneRun, name: str) -> Response:
    """Only a file that the listing of the folder has: a name is compared, never joined."""
    for known in _videos(run):
        if known["name"] == name:
            path = run.videos_dir / name
            if path.resolve().parent == run.videos_dir.resolve():
                return FileResponse(path, media_type=known["kind"])
    raise RunError(f"{run.id} has no video {name!r}")


def stream(
    web: Web,
    cursor: str | None = None,
    watch: SomeRuns = (),
    log: str = "",
    log_cursor: str | None = None,
    job: str = "",
    job_cursor: str | None = None,
) -> Response:
    """Server-sent events. `cursor` follows the list of runs, `watch` the metrics and events of
    runs, `log` the console of one run, `job` that of a job, each from its own cursor."""
    looks = [
        changes_of(path, event, {"run": run.id})
        for run in watch
        for path, event in (
            (run.metrics_path, "metrics"), (run.events_path, "events"), (run.meta_path, "meta"),
            (run.evaluations_path, "events"), (run.activity_path, "meta"),
        )
    ]  # fmt: skip
    if log:
        run = web.run(log)
        looks.append(lines_of(run.log_path, "log", {"run": run.id}, log_cursor))
    if job:
        looks.append(lines_of(find_job(web.root, job).log_path, "job", {"job": job}, job_cursor))
    return StreamingResponse(
        web.list.follow(cursor, looks),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


# --- its buttons


def delete_runs(web: Web, runs: ManyRuns) -> Answer:
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
    "GET /api/session": session,
    "POST /api/login": login,
    "GET /api/runs/{run}": one_run,
    "GET /api/runs/{run}/returns": returns,
    "GET /api/runs/{run}/log": log,
    "GET /api/runs/{run}/videos/{name}": video,
    "GET /api/stream": stream,
    "POST /api/runs/delete": delete_runs,
    "POST /api/runs/{run}/rename": rename_run,
    "POST /api/runs/{run}/set": change_fields,
    "POST /api/runs/{run}/pause": pause_run,
    "GET /api/runs/{run}/files": files,
    "GET /api/runs/{run}/log.txt": log_file,
}
