"""`GET api/groups?runs&by&in&names&ref&metric&x&smooth`: groups of seeds with curves, scores and
verdicts.

The statistics are those of `gsolve compare`; the page only draws them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from gymnasium_solver.experiments.compare import compare
from gymnasium_solver.experiments.groups import VAL, Group, group_runs, labelled_groups
from gymnasium_solver.experiments.pictures import REACHED
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, band, on_grid
from gymnasium_solver.runs.curves import choose_names
from gymnasium_solver.runs.index import stamp
from gymnasium_solver.runs.labels import read_labels
from gymnasium_solver.runs.query import get_config
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import smoothed, thinned
from gymnasium_solver.serve.web.respond import BadRequest, in_thread, number, runs_of, web_of
from gymnasium_solver.serve.web.routes.series import numbers, smoothing
from gymnasium_solver.serve.web.tables import Tables

if TYPE_CHECKING:
    from gymnasium_solver.serve.web.app import Web

MOST_RUNS = 200
REPEATS = 1_000
MOST_KEPT = 32
LEFT_OUT = "-"
LONGEST_NAME = 80


def routes() -> list[BaseRoute]:
    return [Route("/api/groups", in_thread(groups)), Route("/api/diff", in_thread(diff))]


def groups(request: Request) -> dict[str, Any]:
    web, query = web_of(request), request.query_params
    runs = runs_of(request, most=MOST_RUNS)
    by, metric, x = query.get("by", "config"), query.get("metric", VAL), query.get("x", "env_steps")
    weight, points = smoothing(query.get("smooth", "0")), number(request, "points", 300, 10, 2000)
    found = by_hand(runs, query) if by == "hand" else grouped(runs, by)
    names = list(dict.fromkeys(n for run in runs for n in web.tables.of(run).names))
    if metric not in names and names:
        metric = choose_names([metric], names)[0]
    result = compared(web, with_reference(found, query.get("ref")))
    return {
        "metric": metric,
        "metrics": sorted(names),
        "x": x,
        "groups": [_curves(web.tables, group, metric, x, weight, points) for group in found],
        "comparison": result,
        "unscored": [group.label for group in found if not group.scores],
        "fewest_seeds": FEWEST_SEEDS,
    }


def grouped(runs: Sequence[Run], by: str) -> list[Group]:
    """By config without the seed, by run, by tags, or by the value of one field."""
    root = runs[0].path.parent
    if by == "tag":
        tags = [" + ".join(sorted(read_labels(run).tags)) or "no tag" for run in runs]
        return labelled_groups([(t, str(r.path)) for t, r in zip(tags, runs, strict=True)], root)
    if by == "config":
        return group_runs([run.id for run in runs], root)
    if by == "run":
        return [group for run in runs for group in group_runs([f"{run.id[-40:]}={run.id}"], root)]
    members: dict[str, list[str]] = {}
    for run in runs:
        config = get_config(run)
        if by not in config:
            raise BadRequest(f"{run.id} has no field {by!r} to group by")
        text = json.dumps(config[by], default=str).strip('"').replace("=", ":")
        members.setdefault(f"{by} {text}", []).append(run.id)
    return group_runs([f"{label}={','.join(ids)}" for label, ids in members.items()], root)


def by_hand(runs: Sequence[Run], query: QueryParams) -> list[Group]:
    """`in=0,0,1,-`: the group of each run, in the order of `runs`, or - to leave it out;
    `names=a|b`: what the groups are called."""
    places, names = query.get("in", "").split(","), query.get("names", "").split("|")
    if len(places) != len(runs):
        raise BadRequest(
            f"in={query.get('in')!r} names groups for {len(places)} of {len(runs)} runs"
        )
    chosen = []
    for run, place in zip(runs, places, strict=True):
        if place == LEFT_OUT:
            continue
        if not place.isdecimal() or len(place) > 4 or int(place) >= len(names):
            raise BadRequest(f"in: {place[:20]!r} is not one of the {len(names)} groups of `names`")
        name = names[int(place)].strip()[:LONGEST_NAME] or f"group {int(place) + 1}"
        chosen.append((int(place), name, str(run.path)))
    chosen.sort(key=lambda one: one[0])  # groups in the order of their names
    return labelled_groups([(name, path) for _, name, path in chosen], runs[0].path.parent)


def compared(web: "Web", groups: Sequence[Group]) -> dict[str, Any] | None:
    """The comparison, kept while the runs do not change: the metric and the axes have no part in
    it."""
    if not groups:
        return None
    runs = [(g.label, m.summary.path) for g in groups for m in g.members]
    key = tuple((label, path, *_stamps(path)) for label, path in runs)
    if key not in web.comparisons:
        while len(web.comparisons) >= MOST_KEPT:
            web.comparisons.pop(next(iter(web.comparisons)), None)
        web.comparisons[key] = compare(groups).to_dict()
    return web.comparisons[key]


def _stamps(path: str) -> list[tuple[int, ...]]:
    names = ("meta.json", "metrics.jsonl", "events.jsonl")
    return [tuple(stamp(f"{path}/{name}") or ()) for name in names]


def with_reference(groups: Sequence[Group], label: str | None) -> list[Group]:
    """The groups that have scores, the one to compare with first: `label`, or one with most seeds
    of those that allow a verdict."""
    scored = [group for group in groups if group.scores]
    first = next((group for group in scored if group.label == label), None)
    if first is None:
        first = next((group for group in scored if len(group.scores) >= FEWEST_SEEDS), None)
    return scored if first is None else [first, *(group for group in scored if group is not first)]


def _curves(
    tables: Tables, group: Group, metric: str, x: str, weight: float, points: int
) -> dict[str, Any]:
    """The curve of each seed, and with two or more the IQM; its band needs three."""
    lines, raw, final = [], [], []
    for member in group.members:
        at, values = tables.of(Run(Path(member.summary.path))).series(metric, x)
        known = ~np.isnan(values)
        at, values = at[known], values[known]
        line = smoothed(values, weight) if weight else values
        raw.append(list(zip(at.tolist(), line.tolist(), strict=True)))
        final.append(member.summary.stop_reason in REACHED)
        thin = thinned(at, values, points)
        entry: dict[str, Any] = {"run": member.summary.id, "seed": member.summary.seed}
        entry |= {"x": numbers(thin.x), "y": numbers(thin.y)}
        if weight:
            entry["smooth"] = numbers(thinned(at, line, points).y)
        lines.append(entry)
    n = sum(bool(curve) for curve in raw)
    result: dict[str, Any] = {
        "label": group.label, "env_id": group.env_id, "threshold": group.threshold, "n": n,
        "lines": lines, "center": None,
    }  # fmt: skip
    if n >= 2:
        grid, values = on_grid(raw, is_final=final)
        middle, low, high = band(values, repeats=REPEATS)
        result["center"] = {"x": numbers(grid), "y": numbers(middle)}
        if n >= FEWEST_SEEDS:
            result["center"] |= {"lo": numbers(low), "hi": numbers(high)}
    return result


def diff(request: Request) -> dict[str, Any]:
    """All fields of the configs of some runs, those that differ first; types count: 1 is not 1.0
    and not "1"."""
    runs = runs_of(request, most=MOST_RUNS)
    configs = [get_config(run) for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    rows = []
    for name in names:
        values = [config.get(name) for config in configs]
        same = len({json.dumps(value, sort_keys=True, default=str) for value in values}) == 1
        rows.append({"path": name, "same": same, "values": values[:1] if same else values})
    rows.sort(key=lambda row: bool(row["same"]))
    return {"runs": [run.id for run in runs], "fields": rows}
