"""SQL over runs, metrics and events, in an in-memory DuckDB without access to files or network.

The tables are copies made through `runs/query.py` for one query. After loading them, external
access is switched off and the configuration is locked, so a query can reach nothing else.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs import query as runs_query
from gymnasium_solver.runs.curves import CLOCK, Row
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import FIELDS
from gymnasium_solver.runs.store import RunStore
from gymnasium_solver.serve.questions import Answer, Desk, Limit

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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


class QueryError(GsolveError):
    """An SQL query is wrong, refused or too slow."""


def query(desk: Desk, sql: str, filter: str = "", limit: Limit = 50) -> Answer:
    """One SELECT (DuckDB) over runs(run, env, algo, variant, seed, status, solved, test, val,
    steps, time, ..., config JSON), metrics(run, env_steps, epoch, wall_s, "train/...", one
    column per metric) and events(run, kind, env_steps, event JSON). filter: which runs are
    loaded, as in list_runs; at most 100. SELECT corr("train/opt/ppo/approx_kl",
    "train/roll/ep_rew/mean") FROM metrics correlates two."""
    every = desk.store.select(filter.split())
    found = every[:MOST_LOADED]
    with closing(_connect()) as connection:
        _create(connection, "runs", _run_table(found, desk.store))
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
    try:
        import duckdb
    except ImportError:
        raise QueryError("SQL needs DuckDB: pip install 'gymnasium-solver[mcp]'") from None
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


def _run_table(runs: Sequence[RunSummary], store: RunStore) -> Table:
    fields = {name: read for name, read in FIELDS.items() if name not in ("id", "tag")}
    return {
        "run": _texts(run.id for run in runs),
        **{name: _column([read(run) for run in runs]) for name, read in fields.items()},
        "config": _texts(json.dumps(store.config(run), default=str) for run in runs),
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
