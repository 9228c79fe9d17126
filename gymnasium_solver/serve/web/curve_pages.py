"""What the pages that draw ask: curves of runs, groups of seeds with scores and verdicts, the
fields that differ, files with all values and whole reports.

The statistics are those of `gsolve compare`; the page only draws them.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from starlette.responses import Response

from gymnasium_solver.experiments.compare import MARGIN
from gymnasium_solver.experiments.comparison_report import comparison_page
from gymnasium_solver.experiments.groups import (
    REACHED,
    VAL,
    Center,
    Group,
    Member,
    Points,
    group_members,
)
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, write_csv
from gymnasium_solver.runs.episodes import get_episode
from gymnasium_solver.runs.files import finite, picked
from gymnasium_solver.runs.jsonl import tail_jsonl
from gymnasium_solver.runs.metrics import canonical, describe
from gymnasium_solver.runs.query import RunSummary, get_config, get_details, get_rows
from gymnasium_solver.runs.report import run_page
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import value_of
from gymnasium_solver.runs.series import MetricTable, smoothed, thinned
from gymnasium_solver.serve.questions import Answer, BadRequest, OneRun, Runs, SomeRuns, Within
from gymnasium_solver.serve.web.episode_file import with_episodes
from gymnasium_solver.serve.web.handling import Web, attachment

MOST_LINES = 400
MOST_CURVES = 1_200
ABOUT = "label description group unit"
MOST_EPISODES = 4
MOST_BREAKS = 20
REPEATS = 1_000
LEFT_OUT = "-"
LONGEST_NAME = 80
GroupedRuns = Annotated[Sequence[Run], Runs(200)]


def _below_one(name: str, weight: float, asked: Mapping[str, Any]) -> float:
    if not 0 <= weight < 1:
        raise BadRequest(f"{name}={weight}: expected a number from 0 to below 1")
    return weight


Smoothing = Annotated[float, _below_one]


def series(
    web: Web,
    runs: SomeRuns,
    metrics: Sequence[str],
    x: str = "env_steps",
    smooth: Smoothing = 0.0,
    points: Annotated[int, Within(10, 5000, clamps=True)] = 600,
) -> Answer:
    """One entry per run and metric that was logged; the smoothed line next to the raw one."""
    if len(runs) * len(metrics) > MOST_LINES:
        raise BadRequest(f"{len(runs) * len(metrics)} curves; at most {MOST_LINES} at once")
    lines = [
        _line(table, name, x, smooth, points)
        for table in map(web.tables.of, runs)
        for name in metrics
    ]
    return {"x": x, "series": [line for line in lines if line is not None]}


def _line(
    table: MetricTable, name: str, x: str, weight: float, points: int
) -> dict[str, Any] | None:
    known = table.names
    found = name if name in known else canonical(name, known)
    if found is None:
        return None
    at, values = table.series(found, x)
    drawn = _drawn(at, values, smoothed(values, weight), points)
    bad = [] if describe(found).may_be_null else _breaks(at, values)
    return {"run": table.run.id, "metric": found, "n": len(at), "bad": bad} | drawn


def _breaks(at: np.ndarray, values: np.ndarray) -> list[float | None]:
    """Where values become NaN or infinite, which files hold as null; if they are still so at the
    end, the last entry says since when."""
    missing = np.isnan(values)
    starts = missing & ~np.append(False, missing[:-1])
    return numbers(at[starts][-MOST_BREAKS:])


def _drawn(at: np.ndarray, values: np.ndarray, smooth: np.ndarray, points: int) -> Answer:
    """A curve, thinned, with the extremes of what was merged and the smoothed one."""
    thin = thinned(at, values, points)
    line = {"x": numbers(thin.x), "y": numbers(thin.y)}
    if thin.low is not None and thin.high is not None:
        line |= {"lo": numbers(thin.low), "hi": numbers(thin.high)}
    if smooth is not values:
        line["smooth"] = numbers(thinned(at, smooth, points).y)
    return line


def numbers(values: np.ndarray) -> list[float | None]:
    """Short JSON: integers without a fraction, others with seven digits, NaN as null."""
    return [
        None if v != v else int(v) if v == int(v) and abs(v) < 1e15 else float(f"{v:.7g}")
        for v in values.tolist()
    ]


def metrics_csv(web: Web, run: OneRun, metrics: Sequence[str] = ()) -> Response:
    """Every value that was logged."""
    out = io.StringIO()
    write_csv(get_rows(run), out, metrics or None)
    return attachment(out.getvalue(), f"{run.id}.csv", "text/csv")


# --- groups of seeds


def _grouped(
    web: Web, runs: Sequence[Run], by: str, places: str, names: str, ignored: Sequence[str]
) -> list[Group]:
    """The runs of a comparison by config, run, tag, a field, or by hand."""
    web.store.refresh()
    members = [web.member(run) for run in runs]
    if by == "hand":
        return _by_hand(members, places, names)
    if by == "config":  # without the seed
        return group_members([("", member) for member in members], ignored)
    return group_members([(_label(one, by), one) for one in members])


def groups(
    web: Web,
    runs: GroupedRuns,
    metrics: Sequence[str] = (VAL,),
    by: str = "config",
    in_: str = "",
    names: str = "",
    ignore: Sequence[str] = (),
    x: str = "env_steps",
    smooth: Smoothing = 0.0,
    points: Annotated[int, Within(10, 2000, clamps=True)] = 300,
) -> Answer:
    """Groups and the curves of some metrics in each of them, without intervals: fast."""
    if len(runs) * len(metrics) > MOST_CURVES:
        raise BadRequest(f"{len(runs) * len(metrics)} curves; at most {MOST_CURVES} at once")
    found = _grouped(web, runs, by, in_, names, ignore)
    return {
        "x": x,
        "groups": [_group(group) for group in found],
        "curves": {
            name: [_curves(web, group, name, x, smooth, points) for group in found]
            for name in metrics
        },
        "fewest_seeds": FEWEST_SEEDS,
    }


def bands(
    web: Web,
    runs: GroupedRuns,
    metric: str = VAL,
    by: str = "config",
    in_: str = "",
    names: str = "",
    ignore: Sequence[str] = (),
    x: str = "env_steps",
    smooth: Smoothing = 0.0,
    first: Annotated[int, Within(0, 10_000)] = 0,
    count: Annotated[int, Within(1, 50)] = 8,
) -> Answer:
    """The intervals of some groups, from the `first` on, and how many groups there are."""
    found = _grouped(web, runs, by, in_, names, ignore)
    told = []
    for group in found[first : first + count]:
        columns = _columns(web, group, metric, x)
        known = [_points(at, smoothed(values, smooth)) for _, at, values, _ in columns]
        center = group.center(known, REPEATS)
        has_band = center is not None and center.has_interval
        told.append(_center(center, with_band=True) if center is not None and has_band else None)
    return {"bands": told, "n": len(found)}


def scores(
    web: Web,
    runs: GroupedRuns,
    by: str = "config",
    in_: str = "",
    names: str = "",
    ignore: Sequence[str] = (),
    ref: str | None = None,
    margin: str = MARGIN,
) -> Answer:
    """Scores and verdicts of the groups, as `gsolve compare` has them. `ref`: the group to compare
    with; `margin`: the smallest difference that matters, such as 5 or 1%."""
    found = _grouped(web, runs, by, in_, names, ignore)
    scored = _with_reference(found, ref)
    return {
        "comparison": web.compared(scored, margin) if scored else None,
        "unscored": [group.label for group in found if not group.scores],
    }


def metric_names(web: Web, runs: GroupedRuns) -> Answer:
    """The metrics that some runs have logged, from the last rows of each."""
    known: dict[str, None] = {}
    for run in runs:
        for row in tail_jsonl(run.metrics_path):
            known |= dict.fromkeys(row)
    known = {name: None for name in known if name not in CLOCK and name != LOGGED_AT}
    told = [{"name": printable(name)} | picked(describe(name), ABOUT) for name in known]
    return {"metrics": told}


def scatter(web: Web, runs: GroupedRuns, x: str, y: str) -> Answer:
    """Two columns of runs: results, config fields, or the last value of a metric."""
    web.store.refresh()
    return {"points": [[run.id, _value(web, run, x), _value(web, run, y)] for run in runs]}


def _value(web: Web, run: Run, name: str) -> float | None:
    member = web.member(run)
    if "/" in name:
        values = web.tables.column(run, name, "env_steps")[1]
        known = values[~np.isnan(values)]
        return float(known[-1]) if len(known) else None
    value = value_of(member.summary, name, lambda _: member.config)
    if isinstance(value, Mapping):  # a schedule
        value = value.get("start")
    return finite(int(value) if isinstance(value, bool) else value)


def _label(member: Member, by: str) -> str:
    if by == "run":
        return member.summary.id[-40:]
    if by == "tag":
        return " + ".join(sorted(member.summary.tags)) or "no tag"
    if by not in member.config:
        raise BadRequest(f"{member.summary.id} has no field {by!r} to group by")
    return f"{by} " + json.dumps(member.config[by], default=str).strip('"')


def _by_hand(runs: Sequence[Member], places: str, labels: str) -> list[Group]:
    """`places` such as 0,0,1,-: the group of each run, in the order of `runs`, or - to leave it
    out; `labels` such as a|b: what the groups are called."""
    chosen_places, names = places.split(","), labels.split("|")
    if len(chosen_places) != len(runs):
        raise BadRequest(f"in={places!r} names groups for {len(chosen_places)} of {len(runs)} runs")
    chosen = []
    for run, place in zip(runs, chosen_places, strict=True):
        if place == LEFT_OUT:
            continue
        if not place.isdecimal() or len(place) > 4 or int(place) >= len(names):
            raise BadRequest(f"in: {place[:20]!r} is not one of the {len(names)} groups of `names`")
        name = names[int(place)].strip()[:LONGEST_NAME] or f"group {int(place) + 1}"
        chosen.append((int(place), name, run))
    chosen.sort(key=lambda one: one[0])  # groups in the order of their names
    return group_members((name, member) for _, name, member in chosen)


def _with_reference(found: Sequence[Group], label: str | None) -> list[Group]:
    """The groups that have scores, the one to compare with first: `label`, or one with most seeds
    of those that allow a verdict."""
    scored = [group for group in found if group.scores]
    first = next((group for group in scored if group.label == label), None)
    if first is None:
        first = next((group for group in scored if len(group.scores) >= FEWEST_SEEDS), None)
    return scored if first is None else [first, *(group for group in scored if group is not first)]


def _group(group: Group) -> Answer:
    reached = [one.summary.id for one in group.members if one.summary.stop_reason in REACHED]
    told = picked(group, "label env_id threshold")
    return told | {"n": len(group.members), "repeats": len(group.repeats), "reached": reached}


def _curves(web: Web, group: Group, metric: str, x: str, weight: float, points: int) -> Answer:
    """The curve of each seed, and with two or more the IQM."""
    lines: list[Answer] = []
    known: list[Points] = []
    for run, at, values, bad in _columns(web, group, metric, x):
        line = smoothed(values, weight)
        known.append(_points(at, line))
        who = {"run": run.id, "seed": run.seed, "bad": bad}
        lines.append(who | _drawn(at, values, line, points))
    center = group.center(known, with_interval=False)
    return {"lines": lines, "center": None if center is None else _center(center)}


def _columns(
    web: Web, group: Group, metric: str, x: str
) -> Iterator[tuple[RunSummary, np.ndarray, np.ndarray, list[float | None]]]:
    """The values of a metric in each run, without NaN, and where they became NaN."""
    for run in (member.summary for member in group.members):
        at, values = web.tables.column(Run(Path(run.path)), metric, x)
        bad = [] if describe(metric).may_be_null else _breaks(at, values)
        keep = ~np.isnan(values)
        yield run, at[keep], values[keep], bad


def _points(at: np.ndarray, values: np.ndarray) -> Points:
    return list(zip(at.tolist(), values.tolist(), strict=True))


def _center(center: Center, *, with_band: bool = False) -> Answer:
    told = {"x": numbers(center.x), "y": numbers(center.middle), "n": center.n.tolist()}
    return told | ({"lo": numbers(center.low), "hi": numbers(center.high)} if with_band else {})


def diff(web: Web, runs: GroupedRuns) -> Answer:
    """All fields of the configs of some runs, those that differ first; types count: 1 is not 1.0
    and not "1"."""
    configs = [get_config(run) for run in runs]
    rows = []
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name) for config in configs]
        same = len({json.dumps(value, sort_keys=True, default=str) for value in values}) == 1
        rows.append({"path": name, "same": same, "values": values[:1] if same else values})
    rows.sort(key=lambda row: bool(row["same"]))
    return {"runs": [run.id for run in runs], "fields": rows}


def report(
    web: Web, runs: Annotated[Sequence[Run], Runs(50)], episodes: Sequence[str] = ()
) -> Response:
    """One file about runs that opens without a server; episodes of the run play in it."""
    if len(episodes) > MOST_EPISODES or (episodes and len(runs) > 1):
        raise BadRequest(f"'episodes': up to {MOST_EPISODES}, of one run")
    facts = [get_details(run) for run in runs]
    text = run_page(facts[0]) if len(facts) == 1 else comparison_page(facts, runs[0].path.parent)
    text = with_episodes(text, [get_episode(runs[0], name) for name in episodes])
    # Should a browser show it after all, then without rights on this server.
    policy = (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"
    )
    return attachment(text, "report.html", "text/html", **{"content-security-policy": policy})


QUESTIONS = {
    "GET /api/series": series,
    "GET /api/runs/{run}/metrics.csv": metrics_csv,
    "GET /api/groups": groups,
    "GET /api/bands": bands,
    "GET /api/scores": scores,
    "GET /api/metrics": metric_names,
    "GET /api/scatter": scatter,
    "GET /api/diff": diff,
    "GET /api/report.html": report,
}
