"""Metrics of a run for a model: few numbers that say much."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.curves import choose_names
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.plots import match_metric
from gymnasium_solver.runs.series import MetricTable
from gymnasium_solver.serve.questions import Answer, Desk, Limit, OneRun

Curve = tuple[np.ndarray, np.ndarray]
"""Env steps and finite values."""
MOST_METRICS = 12
MOST_CHANGES = 20
TAIL = 0.1  # of the points: the end of a curve


def get_metrics(
    desk: Desk,
    run: OneRun,
    names: Sequence[str] = (),
    stat: Literal["points", "summary", "trend"] = "points",
    start: int = 0,
    end: int = 0,
    around: int = -1,
    limit: Limit = 50,
) -> Answer:
    """Metrics of a run over env steps. Without names: which there are, with the last value.
    names: whole ones, parts (kl), wildcards (train/opt/*), names of other libraries.
    start, end: a range of env steps. around: all metrics in the rows next to this env step.
    trend: slope and change in the range."""
    table = desk.tables.of(run)
    wanted = _meant(table.names, names)
    if around >= 0:
        return {"run": run.id} | _around(table, around, wanted, max(limit, 100))
    if names and len(wanted) > MOST_METRICS:
        shown = ", ".join(wanted[:MOST_METRICS])
        raise RunError(f"{len(wanted)} metrics match, at most {MOST_METRICS} at once: {shown}, ...")
    curves = {name: curve_of(table, name, start, end) for name in wanted}
    if not names:
        counts = {name: {"metric": name, "points": len(y)} for name, (_, y) in curves.items()}
        last = {name: y[-1] if len(y) else None for name, (_, y) in curves.items()}
        return {"run": run.id, "metrics": [counts[n] | {"last": last[n]} for n in curves]}
    if stat == "points":
        thin = {name: thinned(curve, limit) for name, curve in curves.items()}
        return {"run": run.id, "curves": {
            name: {"env_steps": x, "values": y, "points_in_all": len(curves[name][0])}
            for name, (x, y) in thin.items()
        }}  # fmt: skip
    tell = summary if stat == "summary" else trend
    return {"run": run.id, stat: [tell(name, curve) for name, curve in curves.items()]}


def _meant(logged: Sequence[str], names: Sequence[str]) -> list[str]:
    """The logged metrics that a client means; a part of a name stands for all that contain it."""
    if not names:
        return list(logged)
    found: dict[str, None] = {}
    for name in names:
        if not name:
            raise RunError("a metric has an empty name")
        parts = [n for n in logged if name.lower() in n.lower()]
        is_plain = not any(fnmatchcase(n, name) for n in logged)
        found |= dict.fromkeys(parts if parts and is_plain else choose_names([name], logged))
    return list(found)


def curve_of(table: MetricTable, name: str, start: int = 0, end: int = 0) -> Curve:
    """The finite points of a metric in a range of env steps."""
    x, y = table.series(name)
    keep = np.isfinite(y) & (x >= start) & (x <= (end or np.inf))
    return x[keep].astype(np.int64), y[keep]


def thinned(curve: Curve, limit: int) -> Curve:
    """At most `limit` points; the first and the last are kept."""
    last = len(curve[0]) - 1
    if last < limit:
        return curve
    kept = np.linspace(0, last, limit).round().astype(int) if limit > 1 else [last]
    return curve[0][kept], curve[1][kept]


def _around(table: MetricTable, env_steps: int, wanted: Sequence[str], most: int) -> Answer:
    """The rows next to an env step: the last before it or at it, and the first after it. One env
    step may have several rows: metrics of training, an evaluation, alerts."""
    curves = {name: table.series(name) for name in table.names}
    logged = np.unique(np.concatenate([np.empty(0), *(x for x, _ in curves.values())]))
    if not len(logged):
        raise RunError("no metrics are logged yet")
    n_before = int(np.searchsorted(logged, env_steps, side="right"))
    places = (logged[n_before - 1 : n_before][-1:], logged[n_before:][:1])
    found = []
    for name in sorted(wanted):
        x, y = curves[name]
        values = [y[np.isin(x, place)][-1:].tolist() for place in places]
        if any(values):
            before, after = (finite(v[0]) if v else None for v in values)
            found.append({"metric": name, "before": before, "after": after})
    low, high = (int(place[0]) if len(place) else None for place in places)
    return {"env_steps_before": low, "env_steps_after": high, "metrics": found[:most]}


def summary(name: str, curve: Curve) -> Answer:
    x, y = curve
    if not len(y):
        return {"metric": name, "points": 0}
    return {
        "metric": name,
        "points": len(y),
        "first": y[0],
        "last": y[-1],
        "mean": y.mean(),
        "std": y.std(),
        "min": y.min(),
        "min_at": x[y.argmin()],
        "max": y.max(),
        "max_at": x[y.argmax()],
        "means": describe(name).description[:160],
    }


def trend(name: str, curve: Curve) -> Answer:
    """Least-squares slope, and whether the change is larger than the noise around the line."""
    x, y = curve
    if len(x) < 3:
        return {"metric": name, "points": len(x), "trend": "too few points"}
    from_mean = x - x.mean()
    spread = float(from_mean @ from_mean)
    slope = float(from_mean @ y) / spread if spread else 0.0
    rest = y - y.mean() - slope * from_mean
    error = float(np.sqrt(rest @ rest / (len(x) - 2) / spread)) if spread else np.inf
    is_clear = abs(slope) > 2 * error and slope != 0
    verdict, better = None, describe(name).better
    if is_clear and better is not None:
        verdict = "improving" if (slope > 0) == (better == "up") else "getting worse"
    return {
        "metric": name,
        "points": len(x),
        "trend": ("rising" if slope > 0 else "falling") if is_clear else "flat or noisy",
        "verdict": verdict,
        "change_over_range": slope * (x[-1] - x[0]),
        "slope_per_1000_steps": slope * 1000,
        "slope_std_error": error * 1000,
    }


def outcome(table: MetricTable, metric: str) -> Answer:
    """Where a metric ended in one run."""
    run = table.run.id
    try:
        name = match_metric(metric, sorted(table.names))
    except RunError as error:
        raise RunError(f"{run}: {error}") from None
    x, y = curve_of(table, name)
    if not len(y):
        return {"run": run, "metric": name, "last": None}
    top = y.argmin() if describe(name).better == "down" else y.argmax()
    return {
        "run": run,
        "metric": name,
        "last": y[-1],
        "best": y[top],
        "best_at": x[top],
        "tail_mean": y[-max(1, round(len(y) * TAIL)) :].mean(),
        "env_steps": x[-1],
    }


def changes(curve: Curve) -> list[dict[str, Any]]:
    """Where a value changed, thinned: a schedule changes at every row."""
    x, y = curve
    kept = np.flatnonzero(np.diff(y, prepend=np.nan) != 0)
    steps, values = thinned((x[kept], y[kept]), MOST_CHANGES)
    return [{"env_steps": s, "value": v} for s, v in zip(steps, values, strict=True)]
