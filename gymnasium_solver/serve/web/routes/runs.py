"""The list of runs: all of it, what changed, filtered and sorted; tags and notes.

`GET api/runs?cursor`, `GET api/select?q&sort&columns`, `POST api/runs/tags | note`.
"""

import shlex
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.printable import printable
from gymnasium_solver.runs.labels import change_tags, set_note
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import FIELDS, check_column, value_of
from gymnasium_solver.serve.web.live import changes_json
from gymnasium_solver.serve.web.respond import (
    BadRequest,
    field,
    in_thread,
    json_bytes,
    run_of,
    texts,
    web_of,
    with_body,
)

FRESH_S = 0.3
"""A list this old is good enough, so that many requests share one look at the files."""
MOST_COLUMNS = 20


def routes() -> list[BaseRoute]:
    return [
        Route("/api/runs", in_thread(list_runs)),
        Route("/api/select", in_thread(select_runs)),
        Route("/api/runs/tags", with_body(tag_runs), methods=["POST"]),
        Route("/api/runs/note", with_body(note_run), methods=["POST"]),
    ]


def list_runs(request: Request) -> Response:
    """All runs, or with `cursor` what changed since."""
    web = web_of(request)
    cursor = request.query_params.get("cursor")
    changes = web.catalogue.since(cursor, FRESH_S)
    if not changes.is_reset:
        return Response(json_bytes(changes_json(changes)), media_type="application/json")
    known = web.whole_list
    if known is None or known[0] != changes.cursor:
        known = web.whole_list = (changes.cursor, json_bytes(changes_json(changes)))
    return Response(known[1], media_type="application/json")


def select_runs(request: Request) -> dict[str, Any]:
    """The numbers of the runs that the filter accepts, in order; values of further columns."""
    catalogue = web_of(request).catalogue
    words = split_words(request.query_params.get("q", ""))
    found = catalogue.select(words, request.query_params.get("sort") or None, FRESH_S)
    names = [n for n in request.query_params.get("columns", "").split(",") if n][:MOST_COLUMNS]
    everything = catalogue.runs(3600.0)
    for name in names:
        check_column(name, everything, catalogue.config)
    return {
        "order": [catalogue.number(run.id) for run in found],
        "columns": {
            name: [_plain(value_of(run, name, catalogue.config)) for run in found] for name in names
        },
        "fields": _fields(request) if "fields" in request.query_params else None,
    }


def split_words(text: str) -> list[str]:
    """Words as in a shell: quotes keep spaces."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()  # a quote is still open while typing


def _plain(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _fields(request: Request) -> list[str]:
    """Names that may be filtered, sorted and shown: those of runs, then of configs."""
    catalogue = web_of(request).catalogue
    names = dict.fromkeys(FIELDS)
    for run in catalogue.runs(3600.0)[:200]:
        names |= dict.fromkeys(catalogue.config(run))
    return [printable(name) for name in names]


# --- changes


def chosen_runs(request: Request, body: dict[str, Any]) -> list[Run]:
    refs = texts(body, "runs")
    if not refs:
        raise BadRequest("no runs are selected")
    return [run_of(request, ref) for ref in refs]


def tag_runs(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    add = texts(body, "add") if "add" in body else []
    remove = texts(body, "remove") if "remove" in body else []
    runs = chosen_runs(request, body)
    for run in runs:
        own = get_run(run).tags
        change_tags(run, add, [tag for tag in remove if tag in own])
    return {"changed": len(runs)}


def note_run(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    run = run_of(request, field(body, "run", str))
    return {"note": set_note(run, field(body, "note", str)).note}
