"""SQL over runs, metrics and events, in an in-memory DuckDB without access to files or network.

The tables are copies made through `runs/query.py` for one query. After loading them, external
access is switched off and the configuration is locked, so a query can reach nothing else.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mcp_types import CallToolResult

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs import query as runs_query
from gymnasium_solver.runs.curves import Row
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.select import FIELDS
from gymnasium_solver.serve.mcp.answers import answer, bounded
from gymnasium_solver.serve.mcp.settings import Settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TIMEOUT_S = 20.0
MEMORY = "512MB"
MOST_LOADED = 100
CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET lock_configuration = true",
)


class QueryError(GsolveError):
    """An SQL query is wrong, refused or too slow."""


class SqlTools:
    def __init__(self, settings: Settings) -> None:
        self.root = settings.root

    def query(self, sql: str, filter: str = "", limit: int = 50) -> CallToolResult:
        """One SELECT (DuckDB) over runs(run, env, algo, variant, seed, status, solved, test, val,
        steps, time, ..., config JSON), metrics(run, env_steps, epoch, wall_s, "train/...", one
        column per metric) and events(run, kind, env_steps, event JSON). filter: which runs are
        loaded, as in list_runs; at most 100. SELECT corr("train/opt/ppo/approx_kl",
        "train/roll/ep_rew/mean") FROM metrics correlates two."""
        found = runs_query.list_runs(self.root, filter)
        is_cut, found = len(found) > MOST_LOADED, found[:MOST_LOADED]
        connection = _connect()
        try:
            _load(connection, found, sql.lower())
            for line in CLOSED:
                connection.execute(line)
            columns, rows = _run(connection, sql, bounded(limit))
        finally:
            connection.close()
        data: dict[str, Any] = {"columns": columns, "rows": rows[: bounded(limit)]}
        data["more_rows"] = len(rows) > bounded(limit)
        if is_cut:
            data["note"] = f"only the newest {MOST_LOADED} runs were loaded; use filter"
        return answer(data)


def matching(lines: Sequence[str], pattern: str) -> list[str]:
    """The lines that match a regular expression, in linear time whatever the expression is."""
    connection = _connect()
    try:
        found = connection.execute(
            "SELECT line FROM unnest(?::VARCHAR[]) AS t(line) WHERE regexp_matches(line, ?, 'i')",
            [list(lines), pattern[:500]],
        ).fetchall()
    except _duckdb().Error as error:
        raise QueryError(f"pattern: {_first_line(error)}") from None
    finally:
        connection.close()
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


def _load(connection: "DuckDBPyConnection", runs: Sequence[RunSummary], sql: str) -> None:
    """Create the tables; those that the query does not name are not filled."""
    named = [name for name in ("runs", "metrics", "events") if name in sql]
    config = runs_query.configs_of(runs)
    table: dict[str, np.ndarray] = {"run": _texts(run.id for run in runs)}
    for name, read in FIELDS.items():
        if name not in ("id", "tag"):
            table[name] = _column([read(run) for run in runs])
    table["config"] = _texts(json.dumps(config(run), default=str) for run in runs)
    _create(connection, "runs", table)
    loaded = [(run.id, Path(run.path)) for run in runs]
    if "metrics" in named:
        _create(connection, "metrics", _metric_table(loaded))
    if "events" in named:
        _create(connection, "events", _event_table(loaded))


def _create(connection: "DuckDBPyConnection", name: str, table: dict[str, np.ndarray]) -> None:
    connection.register("loading", table)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM loading")
    connection.unregister("loading")


def _metric_table(runs: Sequence[tuple[str, Path]]) -> dict[str, np.ndarray]:
    ids: list[str] = []
    rows: list[Row] = []
    for run_id, path in runs:
        found = runs_query.get_rows(Run(path))
        rows += found
        ids += [run_id] * len(found)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = list(dict.fromkeys(["env_steps", "epoch", "wall_s", *names]))
    table = {"run": _texts(ids)}
    seen = {"run"}
    for name in columns:
        label = name
        while label.lower() in seen:  # DuckDB ignores case in names
            label += "_"
        seen.add(label.lower())
        table[label] = np.array([_float(row.get(name)) for row in rows], dtype=np.float64)
    return table


def _event_table(runs: Sequence[tuple[str, Path]]) -> dict[str, np.ndarray]:
    events = [(i, event) for i, path in runs for event in runs_query.get_events(Run(path))]
    return {
        "run": _texts(run_id for run_id, _ in events),
        "kind": _texts(str(event.get("kind")) for _, event in events),
        "env_steps": np.array([_float(event.get("env_steps")) for _, event in events], np.float64),
        "event": _texts(json.dumps(event, default=str) for _, event in events),
    }


def _float(value: Any) -> float:
    number = finite(value)
    return np.nan if number is None else number


def _texts(values: Any) -> np.ndarray:
    return np.array([*map(str, values)], dtype=object)


def _column(values: list[Any]) -> np.ndarray:
    """Numbers as floats, where NaN is NULL in DuckDB; everything else as text."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool | int | float) for value in known):
        return np.array([_float(float(v) if isinstance(v, bool) else v) for v in values])
    texts = [None if value is None else str(value) for value in values]
    return np.array(texts, dtype=object) if known else np.full(len(values), np.nan)


def _run(connection: Any, sql: str, limit: int) -> tuple[list[str], list[dict[str, Any]]]:
    duckdb = _duckdb()
    timer = threading.Timer(TIMEOUT_S, connection.interrupt)
    timer.daemon = True
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            raise QueryError("expected one SELECT statement; this is a read-only copy of the runs")
        timer.start()
        cursor = connection.execute(statements[0])
        columns = [str(column[0]) for column in cursor.description]
        rows = cursor.fetchmany(limit + 1)
    except duckdb.InterruptException:
        raise QueryError(f"the query took longer than {TIMEOUT_S:g} s") from None
    except (duckdb.Error, RuntimeError) as error:
        raise QueryError(_first_lines(error)) from None
    finally:
        timer.cancel()
    names = [f"{name}_{i}" if columns.index(name) < i else name for i, name in enumerate(columns)]
    return names, [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= 2000 else text[:2000] + "..."


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _first_lines(error: Exception) -> str:
    return "\n".join([line for line in str(error).splitlines() if line.strip()][:4])
