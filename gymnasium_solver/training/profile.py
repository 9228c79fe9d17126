"""Time by section: the table and the trace of `gsolve train CONFIG --profile`.

    timer = Timer(detailed=True)                      # timing.py
    train(config, runs_root=Path("runs"), timer=timer)
    print("\n".join(table(timer)))

The trace contains the first and the last spans in the trace-event format of ui.perfetto.dev and
chrome://tracing. The spans between them are dropped, so the file stays small for long runs.

`--profile kineto` also writes the operators and kernels of a few epochs, by torch.profiler.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch.profiler

from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.timing import REST, Span, Timer
from gymnasium_solver.training.activity import PAUSED
from gymnasium_solver.training.observer import Observer

TRACE, KINETO = "trace.json", "kineto.json"  # files in a run
UPDATE_REST = "rest of the update"
UPDATE_PARTS = ("store in the replay", "sample", "gradient", "optimiser", "target network")
PARTS = ("env", "act", "store", "update", "eval", "log", "checkpoint", PAUSED, REST)
SHARES = ("env", "act", "update", "eval")


class Operators:
    """The trace of torch.profiler (kineto) over some epochs, with `profile: kineto`.

    operators.end_epoch(run.path)     # after every epoch: starts, and writes when it is full
    operators.stop()                  # at the end, whether or not it has begun"""

    def __init__(self, config: Config, observer: Observer):
        self._is_wanted, self._observer = config.profile == "kineto", observer
        self._skip, self._active = config.profile_epochs
        self._n_epochs = 0
        self._folder: Path | None = None
        self._running: torch.profiler.profile | None = None
        if self._is_wanted and self._skip == 0:
            self._start()

    def _start(self) -> None:
        self._running = torch.profiler.profile()  # of the CPU, and of a GPU if there is one
        self._running.start()

    def end_epoch(self, folder: Path) -> None:
        if not self._is_wanted:
            return
        self._n_epochs, self._folder = self._n_epochs + 1, folder
        if self._n_epochs == self._skip:
            self._start()
        elif self._running is not None and self._n_epochs == self._skip + self._active:
            self.stop()

    def stop(self) -> None:
        """End the recording and write it; say so if the run was too short for it."""
        if not self._is_wanted:
            return
        self._is_wanted = False
        if self._running is None or self._folder is None or self._n_epochs == self._skip:
            text = f"no {KINETO}: the run ended before epoch {self._skip + 1} did (profile_epochs)"
            self._observer.on_message("warning", text)
            return
        self._running.stop()
        path = self._folder / KINETO
        self._running.export_chrome_trace(str(path))
        self._running = None
        recorded = self._n_epochs - self._skip
        self._observer.on_message("info", f"operators of {recorded} epochs are in {path}")


class Row(NamedTuple):
    """One line of the table."""

    name: str
    depth: int  # 1: a part of the update
    calls: int
    seconds: float


def share_seconds(timer: Timer) -> dict[str, float]:
    """Seconds of the sections that every run reports; an update includes its parts."""
    seconds = dict(timer.seconds)  # a copy: reading must not create sections that did not run
    found = {name: seconds.get(name, 0.0) for name in SHARES}
    return found | {"update": sum(seconds.get(name, 0.0) for name in ("update", *UPDATE_PARTS))}


def collect_seconds(timer: Timer) -> float:
    """Seconds of collecting: acting, stepping and storing."""
    return sum(timer.seconds.get(name, 0.0) for name in ("env", "act", "store"))


def rows(timer: Timer) -> list[Row]:
    """All sections that ran, with the parts of the update below it."""
    seconds, calls = timer.seconds, timer.calls
    known = seconds | {"update": share_seconds(timer)["update"]}
    found = []
    for name in (name for name in PARTS if name in seconds):
        found.append(Row(name, 0, calls[name], known[name]))
        if name == "update":
            parts = [part for part in UPDATE_PARTS if part in seconds]
            found += [Row(part, 1, calls[part], seconds[part]) for part in parts]
            found.append(Row(UPDATE_REST, 1, calls[name], seconds[name]))
    return found


def table(timer: Timer) -> list[str]:
    """The rows as text: share, seconds, calls and milliseconds per call."""
    total = sum(timer.seconds.values()) or 1.0
    lines = [f"{'':<24}{'share':>7}{'s':>9}{'calls':>10}{'ms/call':>10}"]
    for row in rows(timer):
        name, calls = "  " * (row.depth + 1) + row.name, f"{'':>20}"
        if row.calls:
            calls = f"{row.calls:>10,}{1e3 * row.seconds / row.calls:10.3f}"
        lines.append(f"{name:<24}{row.seconds / total:>7.1%}{row.seconds:>9.2f}{calls}")
    return lines


def report_profile(timer: Timer, folder: Path, observer: Observer) -> None:
    """Write the trace into the folder of a run, and give the table to the observers."""
    timer.charge()
    try:
        trace = write_trace(timer, folder)
    except OSError as error:
        text = f"the trace cannot be written to {folder}: {error.strerror}"
        observer.on_message("warning", text)
    else:
        observer.on_profile(table(timer), trace)


def write_trace(timer: Timer, folder: Path) -> Path:
    """Write the kept spans and the table as a trace file for a browser."""
    first, last = timer.spans
    left_out = timer.n_spans - len(first) - len(last)
    events = [_event(span) for span in (*first, *last)]
    if left_out:
        at = last[0].start_s if last else first[-1].end_s
        text = f"{left_out:,} spans left out before this"
        events.append({"name": text, "ph": "i", "s": "g", "pid": 1, "tid": 1, "ts": 1e6 * at})
    trace = {
        "traceEvents": [*_NAMES, *events],
        "displayTimeUnit": "ms",
        "otherData": {
            "parts": {row.name: {"s": row.seconds, "calls": row.calls} for row in rows(timer)},
            "spans_left_out": left_out,
        },
    }
    path = folder / TRACE
    write_atomic(path, json.dumps(trace, separators=(",", ":")).encode())
    return path


_NAMES: list[dict[str, Any]] = [
    {"name": kind, "ph": "M", "pid": 1, "tid": 1, "args": {"name": name}}
    for kind, name in (("process_name", "gsolve train"), ("thread_name", "training loop"))
]


def _event(span: Span) -> dict[str, Any]:
    name = "collect" if span.name == "store" else span.name
    start, took = 1e6 * span.start_s, 1e6 * (span.end_s - span.start_s)
    ends = {"ts": round(start, 1), "dur": round(took, 1)}
    return {"name": name, "ph": "X", "pid": 1, "tid": 1, **ends}
