"""Metrics of a run for a model: few numbers that say much; and SQL over runs, metrics and events.

A query runs in an in-memory DuckDB over copies made through `runs/query.py`. After loading them,
external access is switched off and the configuration is locked, so it can reach nothing else.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gymnasium_solver.errors import GsolveError, RunError, needing, told_as
from gymnasium_solver.runs import query as runs_query
from gymnasium_solver.runs.curves import CLOCK, Row, choose_name, choose_names
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.resolve import run_name
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import FIELDS
from gymnasium_solver.runs.series import MetricTable
from gymnasium_solver.serve.questions import Answer, Desk, Limit, OneRun

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Curve = tuple[np.ndarray, np.ndarray]  # env steps and finite values
MOST_METRICS = 12
MOST_CHANGES = 20
TAIL = 0.1  # of the points: the end of a curve
TIMEOUT_S = 20.0
MEMORY = "512MB"
MOST_LOADED = 100
LONGEST_CELL = 2000
CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET lock_configuration = true",
)
Table = dict[str, np.ndarray]


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
    wanted = choose_names(names, table.names, parts=True) if names else table.names
    if around >= 0:
        return {"run": run_name(run, desk.root)} | _around(table, around, wanted, max(limit, 100))
    if names and len(wanted) > MOST_METRICS:
        shown = ", ".join(wanted[:MOST_METRICS])
        raise RunError(f"{len(wanted)} metrics match, at most {MOST_METRICS} at once: {shown}, ...")
    curves = {name: curve_of(table, name, start, end) for name in wanted}
    told: Answer = {"run": run_name(run, desk.root)}
    if not names:
        told["metrics"] = [
            {"metric": name, "points": len(y), "last": y[-1] if len(y) else None}
            for name, (_, y) in curves.items()
        ]
    elif stat == "points":
        thin = {name: thinned(curve, limit) for name, curve in curves.items()}
        told["curves"] = {
            name: {"env_steps": x, "values": y, "points_in_all": len(curves[name][0])}
            for name, (x, y) in thin.items()
        }
    else:
        tell = summary if stat == "summary" else trend
        told[stat] = [tell(name, curve) for name, curve in curves.items()]
    return told


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
    with told_as(RunError, run, RunError):
        name = choose_name(metric, sorted(table.names))
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


# --- SQL


class QueryError(GsolveError):
    """An SQL query is wrong, refused or too slow."""


def query(desk: Desk, sql: str, filter: str = "", limit: Limit = 50) -> Answer:
    """One SELECT (DuckDB) over runs(run, env, algo, variant, seed, status, solved, test, val,
    steps, time, ..., config JSON), metrics(run, env_steps, epoch, wall_s, "train/...", one
    column per metric) and events(run, kind, env_steps, event JSON). filter: which runs are
    loaded, as in list_runs; at most 100. SELECT corr("train/opt/ppo/approx_kl",
    "train/roll/ep_rew/mean") FROM metrics correlates two."""
    every = desk.select(filter)
    if not every:
        raise RunError(f"no run matches {filter.strip()[:80]!r}; list_runs() shows all")
    found = every[:MOST_LOADED]
    with closing(_connect()) as connection:
        _create(connection, "runs", _run_table(found, desk))
        loaded = [(run.id, Run(Path(run.path))) for run in found]
        for name, read in (("metrics", _metric_table), ("events", _event_table)):
            if name in sql.lower():
                _create(connection, name, read(loaded))
        for line in CLOSED:
            connection.execute(line)
        columns, rows = _run(connection, sql, limit)
    data: dict[str, Any] = {"columns": columns, "rows": rows[:limit]}
    data["more_rows"] = len(rows) > limit
    if len(every) > MOST_LOADED:
        data["note"] = f"only the newest {MOST_LOADED} runs were loaded; use filter"
    return data


def matching(lines: Sequence[str], pattern: str) -> list[str]:
    """The lines that match a regular expression, in linear time whatever the expression is."""
    sql = "SELECT line FROM unnest(?::VARCHAR[]) AS t(line) WHERE regexp_matches(line, ?, 'i')"
    with closing(_connect()) as connection:
        try:
            found = connection.execute(sql, [list(lines), pattern[:500]]).fetchall()
        except _duckdb().Error as error:
            raise QueryError(f"pattern: {_first_lines(error, 1)}") from None
    return [line for (line,) in found]


def _duckdb() -> Any:
    with needing("SQL needs DuckDB: pip install 'gymnasium-solver[mcp]'", QueryError):
        import duckdb
    return duckdb


def _connect() -> "DuckDBPyConnection":
    connection: DuckDBPyConnection = _duckdb().connect(":memory:")
    for line in (f"SET memory_limit = '{MEMORY}'", "SET threads = 1", "SET temp_directory = ''"):
        connection.execute(line)
    return connection


def _create(connection: "DuckDBPyConnection", name: str, table: Table) -> None:
    connection.register("loading", table)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM loading")
    connection.unregister("loading")


def _run_table(runs: Sequence[RunSummary], desk: Desk) -> Table:
    fields = {name: read for name, read in FIELDS.items() if name not in ("id", "tag")}
    return {
        "run": _texts(run.id for run in runs),
        **{name: _column([read(run) for run in runs]) for name, read in fields.items()},
        "config": _texts(json.dumps(desk.config(run), default=str) for run in runs),
    }


def _metric_table(runs: Sequence[tuple[str, Run]]) -> Table:
    ids: list[str] = []
    rows: list[Row] = []
    for run_id, run in runs:
        found = runs_query.get_rows(run)
        rows += found
        ids += [run_id] * len(found)
    table = {"run": _texts(ids)}
    seen = {"run"}
    for name in dict.fromkeys([*CLOCK, *(name for row in rows for name in row)]):
        label = name
        while label.lower() in seen:  # DuckDB ignores case in names
            label += "_"
        seen.add(label.lower())
        table[label] = _floats(row.get(name) for row in rows)
    return table


def _event_table(runs: Sequence[tuple[str, Run]]) -> Table:
    events = [(i, event) for i, run in runs for event in runs_query.get_events(run)]
    return {
        "run": _texts(run_id for run_id, _ in events),
        "kind": _texts(event.get("kind") for _, event in events),
        "env_steps": _floats(event.get("env_steps") for _, event in events),
        "event": _texts(json.dumps(event, default=str) for _, event in events),
    }


def _floats(values: Iterable[Any]) -> np.ndarray:
    """NaN is NULL in DuckDB."""
    known = (float(value) if isinstance(value, bool) else finite(value) for value in values)
    return np.array([np.nan if value is None else value for value in known], np.float64)


def _texts(values: Iterable[Any]) -> np.ndarray:
    return np.array([*map(str, values)], dtype=object)


def _column(values: list[Any]) -> np.ndarray:
    """Numbers as floats, everything else as text."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool | int | float) for value in known):
        return _floats(values)
    return np.array([None if value is None else str(value) for value in values], dtype=object)


def _run(connection: Any, sql: str, limit: int) -> tuple[list[str], list[dict[str, Any]]]:
    duckdb = _duckdb()
    timer = threading.Timer(TIMEOUT_S, connection.interrupt)
    timer.daemon = True
    try:
        statements = connection.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise QueryError("expected one SELECT statement; this is a read-only copy of the runs")
        timer.start()
        cursor = connection.execute(statements[0])
        columns = [str(column[0]) for column in cursor.description]
        rows = cursor.fetchmany(limit + 1)
    except duckdb.InterruptException:
        raise QueryError(f"the query took longer than {TIMEOUT_S:g} s") from None
    except (duckdb.Error, RuntimeError) as error:
        raise QueryError(_first_lines(error, 4)) from None
    finally:
        timer.cancel()
    names = [f"{name}_{i}" if columns.index(name) < i else name for i, name in enumerate(columns)]
    return names, [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= LONGEST_CELL else text[:LONGEST_CELL] + "..."


def _first_lines(error: Exception, most: int) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()][:most]
    return "\n".join(lines) or type(error).__name__
