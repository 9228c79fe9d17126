"""Curves for drawing: read as they grow, smoothed without rewriting the past, thinned without
losing peaks.

    table = MetricTable(run)
    table.refresh()                                        # reads only what was added
    x, y = table.series("val/roll/ep_rew/mean", x="wall_s")
    line = thinned(x, smoothed(y, 0.9), 600)
"""

import math
from array import array
from dataclasses import dataclass

import numpy as np

from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, Row, event_rows
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import follow_events, follow_metrics, get_columns, get_meta
from gymnasium_solver.runs.run import Run

Array = np.ndarray


def _number(value: object) -> float:
    number = finite(value)
    return math.nan if number is None else number


class MetricTable:
    """The metrics of a run by columns. A `refresh` reads what was added, after a resume all."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._clear()
        self._events: list[Row] = []
        self._of_events: list[Row] = []
        self._events_cursor: str | None = None

    def _clear(self) -> None:
        self.n_rows = self._n_values = 0
        self._cursor: str | None = None
        self._clock = {name: array("d") for name in CLOCK}
        self._columns: dict[str, tuple[array[int], array[float]]] = {}

    @property
    def names(self) -> list[str]:
        """All metrics, in the order in which they were first logged."""
        of_events = [name for row in self._of_events for name in row if name != "env_steps"]
        return list(dict.fromkeys([*self._columns, *of_events]))

    @property
    def n_bytes(self) -> int:
        """About how much memory it takes."""
        return 16 * self._n_values + 24 * self.n_rows

    def refresh(self) -> None:
        tail = follow_metrics(self.run, self._cursor)
        if tail.is_reset:
            self._clear()
        self._cursor = tail.cursor
        for row in tail.rows:
            self._add(row)
        events = follow_events(self.run, self._events_cursor)
        self._events_cursor = events.cursor
        if events.is_reset:
            self._events = []
        if events.rows or events.is_reset:
            self._events += events.rows
            self._of_events = event_rows(self._events, get_meta(self.run))

    def _add(self, row: Row) -> None:
        place = self.n_rows
        for name in CLOCK:
            self._clock[name].append(_number(row.get(name)))
        for name, value in row.items():
            if name in CLOCK or name == LOGGED_AT or isinstance(value, str):
                continue
            places, values = self._columns.setdefault(name, (array("l"), array("d")))
            places.append(place)
            values.append(_number(value))
            self._n_values += 1
        self.n_rows += 1

    def last(self, name: str) -> float | None:
        """The newest value."""
        found = self._columns.get(name)
        return finite(found[1][-1]) if found else None

    def series(self, name: str, x: str = "env_steps") -> tuple[Array, Array]:
        """Values over a clock (env_steps, epoch, wall_s) or over another metric."""
        if name in self._columns:
            places, values = (np.array(part) for part in self._columns[name])
            at = self._over(x)[places]
        else:
            rows = [row for row in self._of_events if name in row]
            values = np.array([_number(row[name]) for row in rows])
            at = self._at([row["env_steps"] for row in rows], x)
        return _ordered(at, values)

    def _over(self, x: str) -> Array:
        """The values of x in each row."""
        if x in self._clock:
            return np.array(self._clock[x])
        whole = np.full(self.n_rows, np.nan)
        if x in self._columns:
            places, values = self._columns[x]
            whole[np.array(places)] = values
        return whole

    def _at(self, env_steps: list[int], x: str) -> Array:
        """The values of x at some env steps, interpolated between the rows."""
        steps = np.array(env_steps, dtype=np.float64)
        if x == "env_steps" or not len(steps):
            return steps
        known, values = np.array(self._clock["env_steps"]), self._over(x)
        use = ~np.isnan(values)
        if not use.any():
            return np.full(len(steps), np.nan)
        return np.interp(steps, known[use], values[use])


def read_series(run: Run, name: str, x: str = "env_steps") -> tuple[Array, Array]:
    """One metric over a clock or another metric, read from the file without its other metrics."""
    rows = [row for row in get_columns(run, (name, x)) if name in row]
    at = np.array([_number(row.get(x)) for row in rows])
    return _ordered(at, np.array([_number(row[name]) for row in rows]))


def _ordered(at: Array, values: Array) -> tuple[Array, Array]:
    """Points by their places, without those that have none."""
    known = ~np.isnan(at)
    order = np.argsort(at[known], kind="stable")
    return at[known][order], values[known][order]


def smoothed(values: Array, weight: float) -> Array:
    """Exponential moving average without the pull of a starting value. A point depends only on
    those before it, so a curve never changes behind its end. NaN stay NaN and are skipped."""
    if not 0 < weight < 1:
        return values
    result = np.full(len(values), np.nan)
    mean, scale = 0.0, 0.0
    for i, value in enumerate(values.tolist()):
        if value == value:
            mean = weight * mean + (1 - weight) * value
            scale = weight * scale + (1 - weight)
            result[i] = mean / scale
    return result


@dataclass(frozen=True)
class Thinned:
    """A curve of a limited number of points. Where several points became one, `y` is their mean and
    `low` and `high` their extremes; they are None if nothing was merged."""

    x: Array
    y: Array
    low: Array | None
    high: Array | None


def thinned(x: Array, y: Array, most: int) -> Thinned:
    """A curve of at most `most` points, each the mean of equally many."""
    if len(x) <= most:
        return Thinned(x, y, None, None)
    edges = np.linspace(0, len(x), most + 1).astype(int)[:-1]
    known = ~np.isnan(y)
    counts = np.add.reduceat(known.astype(np.float64), edges)
    sums = np.add.reduceat(np.where(known, y, 0.0), edges)
    low = np.minimum.reduceat(np.where(known, y, np.inf), edges)
    high = np.maximum.reduceat(np.where(known, y, -np.inf), edges)
    empty = counts == 0
    mean = np.where(empty, np.nan, sums / np.maximum(counts, 1))
    last = np.append(edges[1:], len(x)) - 1
    at = x[last]  # the end of each part, so that the curve ends where the data does
    return Thinned(at, mean, np.where(empty, np.nan, low), np.where(empty, np.nan, high))
