"""Metrics of a run for a model: few numbers that say much."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, Curve, Row, choose_names, logged_names
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.plots import match_metric
from gymnasium_solver.runs.query import get_metrics, get_rows
from gymnasium_solver.runs.run import Run

Points = list[tuple[int, float]]
MOST_METRICS = 12
TAIL = 0.1  # of the points: the end of a curve


def names_in(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """The logged metrics that a client means; a part of a name stands for all that contain it."""
    logged = [name for name in logged_names(rows) if name not in (*CLOCK, LOGGED_AT)]
    if not names:
        return logged
    found: dict[str, None] = {}
    for name in names:
        if not name:
            raise RunError("a metric has an empty name")
        parts = [n for n in logged if name.lower() in n.lower()]
        is_plain = not any(fnmatchcase(n, name) for n in logged)
        matches = parts if parts and is_plain else choose_names([name], logged)
        found |= dict.fromkeys(matches)
    return list(found)


def chosen(
    rows: Sequence[Row], names: Sequence[str], start: int, end: int | None
) -> dict[str, Points]:
    """Finite points of the wanted metrics in a range of env steps."""
    inside = [r for r in rows if r["env_steps"] >= start and (end is None or r["env_steps"] <= end)]
    wanted = names_in(rows, names)
    if names and len(wanted) > MOST_METRICS:
        shown = ", ".join(wanted[:MOST_METRICS])
        raise RunError(f"{len(wanted)} metrics match, at most {MOST_METRICS} at once: {shown}, ...")
    return {
        name: [(r["env_steps"], v) for r in inside if (v := finite(r.get(name))) is not None]
        for name in wanted
    }


def catalogue(curves: Mapping[str, Points]) -> list[dict[str, Any]]:
    return [
        {"metric": name, "points": len(points), "last": points[-1][1] if points else None}
        for name, points in curves.items()
    ]


def points(curves: Mapping[str, Points], limit: int) -> dict[str, Any]:
    """Curves thinned to `limit` points; the first and the last are kept."""
    return {
        "curves": {
            name: {
                "env_steps": [x for x, _ in thinned(curve, limit)],
                "values": [y for _, y in thinned(curve, limit)],
                "points_in_all": len(curve),
            }
            for name, curve in curves.items()
        }
    }


def thinned(curve: Points, limit: int) -> Points:
    if len(curve) <= limit:
        return curve
    if limit == 1:
        return curve[-1:]
    step = (len(curve) - 1) / (limit - 1)
    return [curve[round(i * step)] for i in range(limit)]


def around(rows: Sequence[Row], env_steps: int, names: Sequence[str], limit: int) -> dict[str, Any]:
    """The rows next to an env step: the last before it or at it, and the first after it."""
    if not rows:
        raise RunError("no metrics are logged yet")
    before = [row for row in rows if row["env_steps"] <= env_steps]
    after = [row for row in rows if row["env_steps"] > env_steps]
    # One env step may have several rows: metrics of training, an evaluation, alerts.
    low = max((row["env_steps"] for row in before), default=None)
    high = min((row["env_steps"] for row in after), default=None)
    near = {"before": low, "after": high}
    wanted = set(names_in(rows, names))
    merged: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    for side, place in near.items():
        for row in rows:
            if row["env_steps"] == place:
                merged[side] |= {k: v for k, v in row.items() if k in wanted}
    both = sorted(set(merged["before"]) | set(merged["after"]))[: max(limit, 100)]
    table = [
        {"metric": name, "before": merged["before"].get(name), "after": merged["after"].get(name)}
        for name in both
    ]
    return {"env_steps_before": low, "env_steps_after": high, "metrics": table}


def summary(name: str, curve: Points) -> dict[str, Any]:
    if not curve:
        return {"metric": name, "points": 0}
    values = [y for _, y in curve]
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((y - mean) ** 2 for y in values) / len(values))
    low, high = min(curve, key=lambda p: p[1]), max(curve, key=lambda p: p[1])
    return {
        "metric": name,
        "points": len(values),
        "first": values[0],
        "last": values[-1],
        "mean": mean,
        "std": spread,
        "min": low[1],
        "min_at": low[0],
        "max": high[1],
        "max_at": high[0],
        "means": describe(name).description[:160],
    }


def trend(name: str, curve: Points) -> dict[str, Any]:
    """Least-squares slope, and whether the change is larger than the noise around the line."""
    if len(curve) < 3:
        return {"metric": name, "points": len(curve), "trend": "too few points"}
    n = len(curve)
    mean_x, mean_y = (math.fsum(p[i] for p in curve) / n for i in (0, 1))
    sxx = math.fsum((x - mean_x) ** 2 for x, _ in curve)
    sxy = math.fsum((x - mean_x) * (y - mean_y) for x, y in curve)
    slope = sxy / sxx if sxx else 0.0
    rest = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in curve)
    error = math.sqrt(rest / (n - 2) / sxx) if sxx else math.inf
    is_clear = abs(slope) > 2 * error and slope != 0
    word = ("rising" if slope > 0 else "falling") if is_clear else "flat or noisy"
    better = describe(name).better
    verdict = None
    if is_clear and better is not None:
        verdict = "improving" if (slope > 0) == (better == "up") else "getting worse"
    span = curve[-1][0] - curve[0][0]
    return {
        "metric": name,
        "points": n,
        "trend": word,
        "verdict": verdict,
        "change_over_range": slope * span,
        "slope_per_1000_steps": slope * 1000,
        "slope_std_error": error * 1000,
    }


def outcome(run: Run, metric: str) -> dict[str, Any]:
    """Where a metric ended in one run."""
    curves = get_metrics(run)
    try:
        name = match_metric(metric, sorted(curves))
    except RunError as error:
        raise RunError(f"{run.id}: {error}") from None
    curve: Points = [(x, y) for x, y in curves[name] if y is not None]
    if not curve:
        return {"run": run.id, "metric": name, "last": None}
    tail = [y for _, y in curve[-max(1, round(len(curve) * TAIL)) :]]
    best = max if describe(name).better != "down" else min
    top = best(curve, key=lambda p: p[1])
    return {
        "run": run.id,
        "metric": name,
        "last": curve[-1][1],
        "best": top[1],
        "best_at": top[0],
        "tail_mean": math.fsum(tail) / len(tail),
        "env_steps": curve[-1][0],
    }


def latest(run: Run, names: Sequence[str]) -> dict[str, float]:
    """The last values of those metrics that the run logged."""
    found: dict[str, float] = {}
    for row in get_rows(run):
        for name in names:
            if (value := finite(row.get(name))) is not None:
                found[name] = value
    return {name: found[name] for name in names if name in found}


def changes(curve: Curve, most: int = 20) -> list[dict[str, Any]]:
    """Where a value changed, thinned: a schedule changes at every row."""
    kept: Points = []
    for x, y in curve:
        if y is not None and (not kept or kept[-1][1] != y):
            kept.append((x, y))
    return [{"env_steps": x, "value": y} for x, y in thinned(kept, most)]
