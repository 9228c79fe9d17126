"""What a tracker implements, and which there are."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs.curves import LOGGED_AT
from gymnasium_solver.runs.files import finite
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
    "csv": "csv_file:CsvSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "wandb": "wandb_run:WandbSink",
    "trackio": "trackio_run:TrackioSink",
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
