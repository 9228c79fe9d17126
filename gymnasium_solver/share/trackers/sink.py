"""What a tracker implements, which there are, and the simplest: a CSV file with one line per row of
metrics, tests and alerts included."""

import csv
import importlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.paths import cannot_write_file
from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, event_rows
from gymnasium_solver.runs.files import finite, write_atomic
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.suggest import did_you_mean


class TrackError(GsolveError):
    """A run cannot be sent to a tracker."""


class Sent(NamedTuple):
    """How many rows and events a tracker has."""

    rows: int = 0
    events: int = 0


@dataclass(frozen=True)
class Options:
    """Flags of `gsolve track`."""

    out: Path | None = None
    project: str | None = None
    entity: str | None = None
    mode: str | None = None
    """online or offline; None: as the tracker decides."""
    checkpoints: bool = True


@dataclass(frozen=True)
class Subject:
    """The run that is tracked, as it was when the tracker opened it."""

    run: Run
    meta: dict[str, Any]
    config: dict[str, Any]
    folder: Path
    """The folder for files of the tracker, inside the run's."""
    options: Options = field(default_factory=Options)


class Sink(Protocol):
    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        """Continue where `state`, returned by the last `commit`, says that `sent` is stored.
        Returns what is stored in fact; the rest is sent again."""

    def rewind(self, kept: Sent) -> Sent:
        """Only the first `kept` rows and events are still true: a resume went back. Returns how
        many are stored now."""

    def row(self, index: int, row: Mapping[str, Any]) -> None: ...

    def event(self, index: int, event: Mapping[str, Any]) -> None: ...

    def commit(self) -> dict[str, Any]:
        """Make sure that everything so far is stored. The result is given to the next `open`."""

    def close(self, summary: RunSummary) -> str:
        """The run has ended, or nothing more is sent for now. Returns where to look at it."""


SINKS = {
    "csv": "sink:CsvSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "wandb": "wandb_run:WandbSink",
    "trackio": "wandb_run:TrackioSink",
}


def make_sink(name: str) -> Sink:
    check_names([name])
    module, _, kind = SINKS[name].partition(":")
    found: Sink = getattr(importlib.import_module(f"{__package__}.{module}"), kind)()
    return found


def check_names(names: list[str]) -> list[str]:
    for name in names:
        if name not in SINKS:
            hint = did_you_mean(name, SINKS) or f"Expected {', '.join(SINKS)}."
            raise TrackError(f"there is no tracker {name!r}. {hint}")
    return names


def read_names(text: str) -> list[str]:
    """The names in `--track wandb,tensorboard`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return check_names(list(dict.fromkeys(names)))


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by metric."""
    return {
        name: value
        for name, item in row.items()
        if name not in ("env_steps", LOGGED_AT) and (value := finite(item)) is not None
    }


class CsvSink(Sink):
    """The file is cut to what is known to be complete, and grows from there. A new metric is a new
    column, for which the file is written anew."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        default = subject.folder / "metrics.csv"
        self.path = default if subject.options.out is None else subject.options.out
        self._buffer: list[dict[str, Any]] = []
        is_same = state.get("path") == str(self.path.absolute())
        if is_same and self._take_up(int(state.get("size", 0)), state.get("columns")):
            return sent
        return self.rewind(Sent())

    def _take_up(self, size: int, columns: Any) -> bool:
        """Cut the file to its complete part; False if it does not have it, or was written anew with
        other columns before that was noted."""
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file))
            if self._columns != columns or self.path.stat().st_size < size or not size:
                return False
            os.truncate(self.path, size)
        except (OSError, StopIteration, ValueError, csv.Error):
            return False
        return True

    def rewind(self, kept: Sent) -> Sent:
        self._buffer.clear()
        self._columns = list(CLOCK)
        self._write([], is_whole=True)
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        self._buffer.append({k: v for k, v in row.items() if k != LOGGED_AT})

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        self._buffer += event_rows([event], self._subject.run.meta())

    def commit(self) -> dict[str, Any]:
        new = dict.fromkeys(name for row in self._buffer for name in row)
        if more := [name for name in new if name not in self._columns]:
            with self.path.open(newline="", encoding="utf-8") as file:
                old: list[dict[str, Any]] = list(csv.DictReader(file))
            self._columns += more
            self._write([*old, *self._buffer], is_whole=True)
        elif self._buffer:
            self._write(self._buffer)
        self._buffer.clear()
        size = self.path.stat().st_size
        return {"path": str(self.path.absolute()), "size": size, "columns": self._columns}

    def _write(self, rows: list[dict[str, Any]], is_whole: bool = False) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n")
        if is_whole:
            writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_whole:
                write_atomic(self.path, text.getvalue().encode())
                return
            with self.path.open("ab") as file:
                file.write(text.getvalue().encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write_file("the CSV", self.path, error) from None

    def close(self, summary: RunSummary) -> str:
        return str(self.path)
