"""What the table of runs asks: the list and what changed in it, filters with what may be typed in
them, seeds folded into groups, small curves; tags, notes and the archive."""

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from starlette.responses import Response

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.groups import Member, identity_of, make_group, short_text
from gymnasium_solver.experiments.statistics import as_scores, iqm
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.manage import ARCHIVE, archive, change_tags, restore, set_note
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import FIELDS, check_column, value_of
from gymnasium_solver.runs.store import stamp
from gymnasium_solver.runs.summary import RunSummary
from gymnasium_solver.serve.questions import Answer, BadRequest, ManyRuns, OneRun, Runs
from gymnasium_solver.serve.web.handling import Web
from gymnasium_solver.serve.web.stream import COLUMNS, row

FRESH_S = 0.3  # a list this old is good enough, so that many requests share one look at the files
MOST_COLUMNS = 20
MOST_VALUES = 12
SPARK_POINTS = 32


def list_runs(web: Web, cursor: str | None = None) -> Response:
    """All runs, or with `cursor` what changed since."""
    text = web.list.since(cursor, FRESH_S)[1]
    return Response(text.encode(errors="replace"), media_type="application/json")


def select_runs(
    web: Web,
    q: str = "",
    sort: str = "",
    columns: Sequence[str] = (),
    fields: str | None = None,
    fold: str | None = None,
) -> Answer:
    """The numbers of the runs that the filter accepts, in order; values of further columns; with
    `fields` the names that may be filtered, sorted and shown; with `fold` the groups of seeds."""
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
        "groups": None if fold is None else _groups(web, found),
    }


def _groups(web: Web, runs: Sequence[RunSummary]) -> list[Answer]:
    """Runs whose configs differ only by the seed, in the order of their first runs. As everywhere,
    a second run of a seed does not count."""
    found: dict[tuple[str, str], list[RunSummary]] = {}
    for run in runs:
        config = web.store.config(run)
        known = web.identities.get(run.id)
        if known is None or known[0] is not config:
            known = web.identities[run.id] = (config, identity_of(config))
        # Without a config nothing tells that two runs are alike.
        found.setdefault((run.env_id, known[1] if config else run.id), []).append(run)
    return [_folded(web, own) for own in found.values()]


def _folded(web: Web, runs: Sequence[RunSummary]) -> Answer:
    told: Answer = {"runs": [web.store.number(run.id) for run in runs]}
    if len(runs) == 1:
        return told
    members = [Member(run, {}, {}) for run in runs]  # their configs are the same
    group = make_group(runs[0].name, runs[0].env_id, members)
    scores = group.scores
    center = float(iqm(as_scores(scores))) if scores else None
    return told | {"n": len(group.members), "iqm": center, "solved": group.n_solved}


def field_values(web: Web, field: str) -> Answer:
    """The values that the runs have of a field, the most frequent first."""
    runs, config = web.store.runs(FRESH_S), web.store.config
    check_column(field, runs, config)
    seen: Counter[str] = Counter()
    for run in runs:
        value = value_of(run, field, config)
        for one in value if isinstance(value, list) and field == "tag" else [value]:
            if one is not None:
                seen[printable(short_text(one))] += 1
    return {"values": [[text, n] for text, n in seen.most_common(MOST_VALUES)]}


def sparklines(web: Web, runs: Annotated[Sequence[Run], Runs(100)]) -> Answer:
    """The validations of some runs, few points each."""
    return {"lines": {run.id: _sparkline(web, run) for run in runs}}


def _sparkline(web: Web, run: Run) -> list[list[float]]:
    def read() -> list[list[float]]:
        try:
            events = query.get_events(run, "eval")
        except RunError:  # the page of the run tells what is wrong
            return []
        points = [
            [float(event["env_steps"]), mean]
            for event in events
            if event.get("stage", "val") == "val"
            and (mean := finite(event.get("mean"))) is not None
        ]
        places = np.linspace(0, len(points) - 1, min(len(points), SPARK_POINTS)).round().astype(int)
        return [points[i] for i in places]

    return web.sparklines.get((run.id, *(stamp(str(run.events_path)) or ())), read)


def tag_runs(
    web: Web, runs: ManyRuns, add: Sequence[str] = (), remove: Sequence[str] = ()
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


def archive_runs(web: Web, runs: ManyRuns) -> Answer:
    return {"archived": [path.name for path in archive(runs)]}


def restore_runs(web: Web, runs: Sequence[str]) -> Answer:
    if not runs:
        raise BadRequest("no runs are selected")
    found = {run.id: run for run in (web.run(ref, web.root / ARCHIVE) for ref in runs)}
    return {"restored": [path.name for path in restore(found.values())]}


QUESTIONS = {
    "GET /api/runs": list_runs,
    "GET /api/select": select_runs,
    "GET /api/values": field_values,
    "GET /api/sparklines": sparklines,
    "GET /api/archive": archived,
    "POST /api/runs/tags": tag_runs,
    "POST /api/runs/note": note_run,
    "POST /api/runs/archive": archive_runs,
    "POST /api/runs/restore": restore_runs,
}
