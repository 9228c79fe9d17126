"""What the pages that draw ask: curves of runs, groups of seeds with scores and verdicts, the
fields that differ, files with all values and whole reports.

The statistics are those of `gsolve compare`; the page only draws them.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from starlette.responses import Response

from gymnasium_solver.experiments.compare import MARGIN
from gymnasium_solver.experiments.comparison_report import comparison_page
from gymnasium_solver.experiments.groups import VAL, Group, group_runs, labelled_groups
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS
from gymnasium_solver.runs.curves import choose_names, write_csv
from gymnasium_solver.runs.episodes import get_episode
from gymnasium_solver.runs.manage import read_labels
from gymnasium_solver.runs.metrics import canonical, describe
from gymnasium_solver.runs.query import get_config, get_details, get_rows
from gymnasium_solver.runs.report import run_page
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import MetricTable, smoothed, thinned
from gymnasium_solver.serve.questions import Answer, BadRequest, OneRun, Runs, SomeRuns, Whole
from gymnasium_solver.serve.web.episode_file import with_episodes
from gymnasium_solver.serve.web.handling import Web, attachment

MOST_LINES = 400
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
    points: Annotated[int, Whole(10, 5000, clamps=True)] = 600,
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


def groups(
    web: Web,
    runs: GroupedRuns,
    by: str = "config",
    in_: str = "",
    names: str = "",
    ref: str | None = None,
    margin: str = MARGIN,
    metric: str = VAL,
    x: str = "env_steps",
    smooth: Smoothing = 0.0,
    points: Annotated[int, Whole(10, 2000, clamps=True)] = 300,
) -> Answer:
    """Groups with their curves, scores and verdicts. `ref`: the group to compare with; `margin`:
    the smallest difference that matters, such as 5 or 1%."""
    root = runs[0].path.parent
    if by == "hand":
        found = _by_hand(runs, in_, names)
    elif by == "config":  # without the seed
        found = group_runs([run.id for run in runs], root)
    else:  # by run, by tags, or by the value of one field
        found = labelled_groups([(_label(run, by), str(run.path)) for run in runs], root)
    known = list(dict.fromkeys(n for run in runs for n in web.tables.of(run).names))
    if metric not in known and known:
        metric = choose_names([metric], known)[0]
    scored = _with_reference(found, ref)
    return {
        "metric": metric,
        "metrics": sorted(known),
        "x": x,
        "groups": [_curves(web, group, metric, x, smooth, points) for group in found],
        "comparison": web.compared(scored, margin) if scored else None,
        "unscored": [group.label for group in found if not group.scores],
        "fewest_seeds": FEWEST_SEEDS,
    }


def _label(run: Run, by: str) -> str:
    if by == "run":
        return run.id[-40:]
    if by == "tag":
        return " + ".join(sorted(read_labels(run).tags)) or "no tag"
    config = get_config(run)
    if by not in config:
        raise BadRequest(f"{run.id} has no field {by!r} to group by")
    return f"{by} " + json.dumps(config[by], default=str).strip('"')


def _by_hand(runs: Sequence[Run], places: str, labels: str) -> list[Group]:
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
        chosen.append((int(place), name, str(run.path)))
    chosen.sort(key=lambda one: one[0])  # groups in the order of their names
    return labelled_groups([(name, path) for _, name, path in chosen], runs[0].path.parent)


def _with_reference(found: Sequence[Group], label: str | None) -> list[Group]:
    """The groups that have scores, the one to compare with first: `label`, or one with most seeds
    of those that allow a verdict."""
    scored = [group for group in found if group.scores]
    first = next((group for group in scored if group.label == label), None)
    if first is None:
        first = next((group for group in scored if len(group.scores) >= FEWEST_SEEDS), None)
    return scored if first is None else [first, *(group for group in scored if group is not first)]


def _curves(web: Web, group: Group, metric: str, x: str, weight: float, points: int) -> Answer:
    """The curve of each seed, and with two or more the IQM; its band needs three."""
    lines, raw = [], []
    for member in group.members:
        at, values = web.tables.of(Run(Path(member.summary.path))).series(metric, x)
        known = ~np.isnan(values)
        at, values = at[known], values[known]
        line = smoothed(values, weight)
        raw.append(list(zip(at.tolist(), line.tolist(), strict=True)))
        who = {"run": member.summary.id, "seed": member.summary.seed}
        lines.append(who | _drawn(at, values, line, points))
    n = sum(bool(curve) for curve in raw)
    result: dict[str, Any] = {
        "label": group.label, "env_id": group.env_id, "threshold": group.threshold, "n": n,
        "lines": lines, "center": None,
    }  # fmt: skip
    if (center := group.center(raw, REPEATS)) is not None:
        result["center"] = {"x": numbers(center.x), "y": numbers(center.middle)}
        if center.has_interval:
            result["center"] |= {"lo": numbers(center.low), "hi": numbers(center.high)}
    return result


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
    "GET /api/diff": diff,
    "GET /api/report.html": report,
}
