"""`GET api/series?runs&metrics&x&smooth&points`: curves for drawing. `GET api/runs/ID/metrics.csv`:
every value that was logged."""

import io
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.runs.curves import choose_names, write_csv
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.series import MetricTable, smoothed, thinned
from gymnasium_solver.serve.web.respond import (
    BadRequest,
    in_thread,
    number,
    run_of,
    runs_of,
    web_of,
)

MOST_LINES = 400


def routes() -> list[BaseRoute]:
    return [
        Route("/api/series", in_thread(series)),
        Route("/api/runs/{run}/metrics.csv", in_thread(metrics_csv)),
    ]


def series(request: Request) -> dict[str, Any]:
    """One entry per run and metric that was logged; the smoothed line beside the raw one."""
    query = request.query_params
    names = [name for name in query.get("metrics", "").split(",") if name]
    if not names:
        raise BadRequest("'metrics' is missing: expected names, separated by commas")
    x = query.get("x", "env_steps")
    weight = smoothing(query.get("smooth", "0"))
    points = number(request, "points", 600, 10, 5000)
    tables = [web_of(request).tables.of(run) for run in runs_of(request)]
    if len(tables) * len(names) > MOST_LINES:
        raise BadRequest(f"{len(tables) * len(names)} curves; at most {MOST_LINES} at once")
    return {
        "x": x,
        "series": [
            line
            for table in tables
            for name in names
            if (line := one_line(table, name, x, weight, points)) is not None
        ],
    }


def one_line(
    table: MetricTable, name: str, x: str, weight: float, points: int
) -> dict[str, Any] | None:
    known = table.names
    if name not in known:
        found = choose_names([name], known) if "*" not in name and _is_alias(name, known) else []
        if not found:
            return None
        name = found[0]
    at, values = table.series(name, x)
    thin = thinned(at, values, points)
    line: dict[str, Any] = {
        "run": table.run.id, "metric": name, "n": len(at), "x": numbers(thin.x),
        "y": numbers(thin.y),
    }  # fmt: skip
    if thin.low is not None and thin.high is not None:
        line |= {"lo": numbers(thin.low), "hi": numbers(thin.high)}
    if weight:
        line["smooth"] = numbers(thinned(at, smoothed(values, weight), points).y)
    return line


def _is_alias(name: str, known: list[str]) -> bool:
    from gymnasium_solver.runs.metric_aliases import canonical

    return canonical(name, known) is not None


def numbers(values: np.ndarray) -> list[float | None]:
    """Short JSON: integers without a fraction, others with seven digits, NaN as null."""
    return [
        None if v != v else int(v) if v == int(v) and abs(v) < 1e15 else float(f"{v:.7g}")
        for v in values.tolist()
    ]


def smoothing(text: str) -> float:
    try:
        weight = float(text or 0)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < 1:
        raise BadRequest(f"smooth={text!r}: expected a number from 0 to below 1")
    return weight


def metrics_csv(request: Request) -> Response:
    run = run_of(request)
    wanted = [name for name in request.query_params.get("metrics", "").split(",") if name]
    out = io.StringIO()
    write_csv(get_rows(run), out, wanted or None)
    name = f"{run.id}.csv".replace('"', "")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
