"""What the pages of runs ask: the list and what changed in it, one run with all but its curves, its
log and videos, streams; tags, notes and the archive."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from starlette.responses import FileResponse, Response, StreamingResponse

from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.manage import ARCHIVE, archive, change_tags, restore, set_note
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.run import Run, is_alive_here
from gymnasium_solver.runs.select import FIELDS, check_column, value_of
from gymnasium_solver.runs.store import stamp
from gymnasium_solver.runs.words import next_steps, result_rows, train_command
from gymnasium_solver.serve.questions import Answer, BadRequest, OneRun, Runs, SomeRuns
from gymnasium_solver.serve.web.handling import Web, answer
from gymnasium_solver.serve.web.job_pages import find_job
from gymnasium_solver.serve.web.stream import COLUMNS, changes_of, follow_text, lines_of, row
from gymnasium_solver.version import __version__

FRESH_S = 0.3
"""A list this old is good enough, so that many requests share one look at the files."""
MOST_COLUMNS = 20
EVALUATION = (
    "stage", "at", "env_steps", "epoch", "mean", "std", "stderr", "min", "max", "episodes",
    "length_mean", "success", "greedy", "checkpoint", "changed",
)  # fmt: skip
ABOUT_METRIC = ("label", "description", "better", "group", "unit", "priority")
Selected = Annotated[Sequence[Run], Runs(20_000)]
"""Runs that are selected in the table, which may be all that it shows."""


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


def list_runs(web: Web, cursor: str | None = None) -> Response:
    """All runs, or with `cursor` what changed since."""
    text = web.list.since(cursor, FRESH_S)[1]
    return Response(text.encode(errors="replace"), media_type="application/json")


def select_runs(
    web: Web, q: str = "", sort: str = "", columns: Sequence[str] = (), fields: str | None = None
) -> Answer:
    """The numbers of the runs that the filter accepts, in order; values of further columns; with
    `fields` the names that may be filtered, sorted and shown."""
    store = web.store
    try:
        words = shlex.split(q)  # as in a shell: quotes keep spaces
    except ValueError:
        words = q.split()  # a quote is still open while typing
    found = store.select(words, sort or None, FRESH_S)
    names = list(columns)[:MOST_COLUMNS]
    everything = store.runs(3600.0)
    for name in names:
        check_column(name, everything, store.config)
    known = dict.fromkeys(FIELDS)
    for run in everything[:200] if fields is not None else ():
        known |= dict.fromkeys(store.config(run))
    return {
        "order": [store.number(run.id) for run in found],
        "columns": {
            name: [
                printable(value) if isinstance(value, str) else value
                for value in (value_of(run, name, store.config) for run in found)
            ]
            for name in names
        },
        "fields": None if fields is None else [printable(name) for name in known],
    }


def tag_runs(
    web: Web, runs: Selected, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> Answer:
    for run in runs:
        own = query.get_run(run).tags
        change_tags(run, add, [tag for tag in remove if tag in own])
    return {"changed": len(runs)}


def note_run(web: Web, run: OneRun, note: str) -> Answer:
    return {"note": set_note(run, note).note}


def archived(web: Web) -> Answer:
    """The archived runs, newest first, with the columns of the list."""
    found = query.list_runs(web.root / ARCHIVE)
    return {"columns": COLUMNS, "rows": [row(n, run) for n, run in enumerate(found)]}


def archive_runs(web: Web, runs: Selected) -> Answer:
    return {"archived": [path.name for path in archive(runs)]}


def restore_runs(web: Web, runs: Sequence[str]) -> Answer:
    if not runs:
        raise BadRequest("no runs are selected")
    found = {run.id: run for run in (web.run(ref, web.root / ARCHIVE) for ref in runs)}
    return {"restored": [path.name for path in restore(found.values())]}


# --- one run


def one_run(web: Web, run: OneRun) -> Answer:
    details = query.get_details(run)
    summary, meta = details.summary, details.meta
    rows, why = result_rows(summary, details.tests, details.score)
    table = web.tables.of(run)
    config = None
    with suppress(RunError):
        key = (run.id, *(stamp(str(run.config_path)) or ()))
        config = web.configs.get(key, lambda: query.get_config(run))
    return {
        "summary": summary.to_dict() | {"path": None},
        "is_alive": is_alive_here(meta),
        "result": rows,
        "why": why,
        "config": config,
        "changed": meta["changed"] if isinstance(meta.get("changed"), dict) else None,
        "machine": meta["machine"] | {"pid": meta.get("pid")},
        "versions": meta["versions"],
        "git": meta["git"],
        "command": [printable(word) for word in meta["command"]],
        "resumed": meta["resumed"],
        "alerts": [alert.to_dict() for alert in details.alerts],
        "evaluations": [
            {name: event[name] for name in EVALUATION if name in event}
            for event in details.evaluations
        ],
        "changes": [event for event in details.events if event.get("kind") == "hyperparameter"],
        "metrics": [
            {"name": printable(name), "last": table.last(name)}
            | {key: getattr(describe(name), key) for key in ABOUT_METRIC}
            for name in table.names
        ],
        "videos": _videos(run),
        "commands": [*next_steps(summary), train_command(summary)],
    }


def returns(web: Web, run: OneRun) -> Answer:
    """The returns of the single episodes of each evaluation."""
    evaluations = [
        {name: event.get(name) for name in ("stage", "env_steps", "greedy")}
        | {"returns": [r for r in map(finite, event["returns"]) if r is not None]}
        for event in query.get_events(run, "eval")
        if isinstance(event.get("returns"), list)
    ]
    return {"evaluations": [one for one in evaluations if one["returns"]]}


def log(web: Web, run: OneRun, cursor: str | None = None) -> Answer:
    return follow_text(run.log_path, cursor)


def _videos(run: Run) -> list[dict[str, Any]]:
    return [
        {"name": p.name, "bytes": p.stat().st_size, "kind": query.MEDIA_TYPES[p.suffix.lower()]}
        for p in query.get_videos(run)
    ]


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
            (run.evaluations_path, "events"),
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


QUESTIONS = {
    "GET /api/session": session,
    "POST /api/login": login,
    "GET /api/runs": list_runs,
    "GET /api/select": select_runs,
    "GET /api/archive": archived,
    "POST /api/runs/tags": tag_runs,
    "POST /api/runs/note": note_run,
    "POST /api/runs/archive": archive_runs,
    "POST /api/runs/restore": restore_runs,
    "GET /api/runs/{run}": one_run,
    "GET /api/runs/{run}/returns": returns,
    "GET /api/runs/{run}/log": log,
    "GET /api/runs/{run}/videos/{name}": video,
    "GET /api/stream": stream,
}
