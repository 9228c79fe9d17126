"""The declared metrics by name, names of other systems, and reading of JSONL.

Names are `<train|val|test>/<group>/<metric>`. A row of metrics.jsonl is
    {"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}
Undeclared names may be logged too; `describe` then returns neutral properties. The declarations are
in declared.py, the names of other systems in metric_aliases.py.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.declared import all_metrics
from gymnasium_solver.runs.metric import Better, Metric

__all__ = ["METRICS", "Better", "Metric", "describe", "find_metrics", "parse_jsonl", "read_jsonl"]

_SHOWN_LAST = 1_000

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in sorted(
        all_metrics(), key=lambda m: _SHOWN_LAST if m.priority is None else m.priority
    )
}
"""Declared metrics; those of the console table first, in its order."""
_PATTERNS = [metric for metric in METRICS.values() if metric.is_pattern]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; empty if there is no file.

    An incomplete last line (from a killed or still writing process) is ignored. An invalid line
    before it is an error, since the rows after it would be lost silently.
    """
    return parse_jsonl(path.read_bytes(), path) if path.is_file() else []


def parse_jsonl(data: bytes, path: Path) -> list[dict[str, Any]]:
    """`read_jsonl` for bytes already read from `path`."""
    *whole, _torn = data.split(b"\n")  # the text after the last newline is empty or incomplete
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunError(
                f"{path} line {number} is not JSON: {error}. Delete the line to use the others."
            ) from None
        if not isinstance(row, dict):
            raise RunError(
                f"{path} line {number} is a {type(row).__name__}, expected a mapping. "
                "Delete the line to use the others."
            )
        rows.append(row)
    return rows


@lru_cache(maxsize=4096)
def describe(name: str) -> Metric:
    """The declaration of this metric, or neutral properties."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric
    for pattern in _PATTERNS:
        if (found := pattern.of(name)) is not None:
            return found
    return Metric(name, "", group="/".join(name.split("/")[:2]))


def find_metrics(text: str | None = None) -> list[Metric]:
    """The declared metrics that have every word of `text` in their name or description."""
    words = (text or "").lower().split()
    return [
        metric
        for metric in METRICS.values()
        if all(word in f"{metric.name} {metric.description}".lower() for word in words)
    ]
