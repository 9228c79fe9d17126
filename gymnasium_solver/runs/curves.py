"""The metrics of a run as rows and curves: metrics.jsonl, and what events.jsonl adds to it.

Tests and alerts are events. As metrics they are called `test/...` and `alert/<rule>`.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TextIO

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import canonical
from gymnasium_solver.suggest import ask, nearest

Row = dict[str, Any]
Curve = list[tuple[int, float | None]]
"""(env_steps, value) in the order logged; None if the value was not finite."""
CLOCK = ("env_steps", "epoch", "wall_s")
LOGGED_AT = "logged_at"
"""Env steps when a row was written, if that was later: a result of `eval_async`."""
_OF_TEST = {name: f"roll/ep_rew/{name}" for name in ("mean", "std", "min", "max")}
_OF_TEST |= {"length_mean": "roll/ep_len/mean", "success": "roll/success"}
_OF_TEST |= {"episodes": "roll/episodes"}


def event_rows(events: Iterable[Mapping[str, Any]], meta: Mapping[str, Any]) -> list[Row]:
    """Rows with the metrics of tests and alerts, by env steps."""
    verdict = meta.get("test")
    is_greedy = bool(verdict.get("greedy")) if isinstance(verdict, dict) else True
    rows = []
    best: float | None = None
    for event in events:
        kind, stage = event.get("kind"), event.get("stage")
        row: Row = {"env_steps": event.get("env_steps") or 0}
        if kind == "alert" and isinstance(event.get("name"), str):
            rows.append(row | {f"alert/{event['name']}": float(not event.get("is_over"))})
        elif kind == "eval" and stage in ("test", "failed_test"):
            if stage == "test" and event.get("greedy", True) != is_greedy:
                continue  # the other kind of actions is not the verdict
            row |= {f"test/{name}": event.get(field) for field, name in _OF_TEST.items()}
            if (mean := event.get("mean")) is not None:
                best = mean if best is None else max(best, mean)
            row["test/roll/ep_rew/best"] = best
            if stage == "failed_test" or meta.get("solved") is not None:
                row["test/solved"] = float(stage == "test" and bool(meta.get("solved")))
            rows.append(row)
    return sorted(rows, key=lambda row: row["env_steps"])


def curves(rows: Sequence[Row], names: Iterable[str] | None = None) -> dict[str, Curve]:
    """Curves by metric name; see `choose_names` for `names`; None: all metrics."""
    logged = logged_names(rows)
    chosen = logged if names is None else choose_names(names, logged)
    return {
        name: [(row["env_steps"], finite(row[name])) for row in rows if name in row]
        for name in chosen
    }


def logged_names(rows: Iterable[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in ("env_steps", LOGGED_AT)]


def choose_names(names: Iterable[str], logged: Sequence[str], *, parts: bool = False) -> list[str]:
    """The logged metrics that `names` mean: whole names, names with wildcards (`train/opt/*`),
    names of other systems; with `parts` a part of a name means all that contain it."""
    chosen: dict[str, None] = {}
    for name in names:
        if not name:
            raise RunError("a metric has an empty name")
        containing = [n for n in logged if name.lower() in n.lower()]
        matches = [n for n in logged if n == name] or [n for n in logged if fnmatchcase(n, name)]
        if not matches and (alias := canonical(name, logged)) is not None:
            matches = [alias]
        if not matches and parts:
            matches = containing
        if not matches:
            ends = {metric.rpartition("/")[2]: metric for metric in logged}
            near = [ends.get(n, n) for n in nearest(name, [*logged, *ends], cutoff=0.5)]
            hint = (
                ask(near or containing[:3]) or "gsolve run RUN --metrics lists those that it has."
            )
            raise RunError(f"the run has no metric {name!r}. {hint}")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def choose_name(name: str, logged: Sequence[str]) -> str:
    """The only metric that `name` means, or the only one that contains it."""
    first, *others = choose_names([name], logged, parts=True)
    if others:
        raise RunError(f"{name!r} matches several metrics: {', '.join([first, *others])}")
    return first


def write_csv(rows: Sequence[Row], file: TextIO, names: Iterable[str] | None = None) -> int:
    """Write one line per env step of the clock and return the number of lines. A value that was
    not logged, or was not finite, is an empty cell."""
    logged = logged_names(rows)
    chosen = logged if names is None else choose_names(names, logged)
    columns = [*CLOCK, *(name for name in chosen if name not in CLOCK)]
    writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    merged: dict[int, Row] = {}
    for row in rows:
        merged.setdefault(row["env_steps"], {}).update(row)
    lines = [merged[steps] for steps in sorted(merged)]
    lines = [row for row in lines if names is None or any(name in row for name in chosen)]
    writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in lines)
    return len(lines)
