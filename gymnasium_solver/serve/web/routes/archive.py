"""Runs out of the list and back: `GET api/archive`, `POST api/runs/archive | restore`."""

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from gymnasium_solver.runs.query import list_runs
from gymnasium_solver.runs.remove import ARCHIVE, archive, restore
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.serve.web.respond import BadRequest, in_thread, texts, web_of, with_body
from gymnasium_solver.serve.web.routes.runs import chosen_runs
from gymnasium_solver.serve.web.rows import COLUMNS, row


def routes() -> list[BaseRoute]:
    return [
        Route("/api/archive", in_thread(archived)),
        Route("/api/runs/archive", with_body(archive_runs), methods=["POST"]),
        Route("/api/runs/restore", with_body(restore_runs), methods=["POST"]),
    ]


def archived(request: Request) -> dict[str, Any]:
    """The archived runs, newest first, with the columns of the list."""
    found = list_runs(web_of(request).settings.root / ARCHIVE)
    return {"columns": COLUMNS, "rows": [row(n, run) for n, run in enumerate(found)]}


def archive_runs(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    paths = archive(chosen_runs(request, body))
    return {"archived": [path.name for path in paths]}


def restore_runs(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    folder = web_of(request).settings.root / ARCHIVE
    refs = texts(body, "runs")
    if not refs:
        raise BadRequest("no runs are selected")
    runs = {run.id: run for run in (resolve_run(r, folder, allow_paths=False) for r in refs)}
    return {"restored": [path.name for path in restore(runs.values())]}
