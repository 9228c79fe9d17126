"""Passes the rows and events of a run to a tracker, each exactly once.

    Follower(run, "tensorboard").send()              # all that is there now
    Follower(run, "wandb").follow()                  # until the run has ended

What was sent is kept in `trackers/<name>.json` and, as one checksum per line, in `<name>.rows` and
`<name>.events`. A follower that is started again compares the lines of the run with these
checksums: a common beginning is not sent again, and where they differ a resume has rewritten the
run, so the tracker is taken back to there.
"""

import csv
import importlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.paths import writing_file
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, event_rows
from gymnasium_solver.runs.files import dump_json, finite, read_json, take_lock, write_atomic
from gymnasium_solver.runs.query import RunSummary, get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.suggest import check_known
from gymnasium_solver.training.observer import Observer, TrainInfo


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
    mode: str | None = None  # online or offline; None: as the tracker decides
    checkpoints: bool = True


@dataclass(frozen=True)
class Subject:
    """The run that is tracked, as it was when the tracker opened it."""

    run: Run
    meta: dict[str, Any]
    config: dict[str, Any]
    folder: Path  # the folder for files of the tracker, inside the run's
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
    "csv": "follow:CsvSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "wandb": "wandb_run:WandbSink",
    "trackio": "wandb_run:TrackioSink",
}
PACKAGES = {
    "wandb": "pip install 'gymnasium-solver[wandb]'",
    "trackio": "pip install trackio in an environment of its own, and gsolve track there",
}


def make_sink(name: str) -> Sink:
    check_names([name])
    module, _, kind = SINKS[name].partition(":")
    found: Sink = getattr(importlib.import_module(f"{__package__}.{module}"), kind)()
    return found


def check_names(names: list[str]) -> list[str]:
    for name in names:
        check_known(TrackError, name, SINKS, f"there is no tracker {name!r}")
    return names


def check_installed(names: Iterable[str]) -> None:
    """TrackError if the package of a tracker is missing."""
    for name, command in PACKAGES.items():
        if name in names and importlib.util.find_spec(name) is None:
            raise TrackError(f"--track {name} needs its package: {command}")


def read_names(text: str) -> list[str]:
    """The names in `--track wandb,tensorboard`; `none` are none."""
    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    return check_names(list(dict.fromkeys(names)))


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by metric."""
    return {
        name: value
        for name, item in row.items()
        if name not in ("env_steps", LOGGED_AT) and (value := finite(item)) is not None
    }


class CsvSink(Sink):
    """The file is written anew by each follower, since the run has all that is in it, and grows
    from there. A new metric is a new column, for which the file is written anew, too."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        self.path = subject.options.out or subject.folder / "metrics.csv"
        self._buffer: list[dict[str, Any]] = []
        return self.rewind(Sent())

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
        return {}

    def _write(self, rows: list[dict[str, Any]], is_whole: bool = False) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n")
        if is_whole:
            writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
        with writing_file("the CSV", self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_whole:
                write_atomic(self.path, text.getvalue().encode())
                return
            with self.path.open("ab") as file:
                file.write(text.getvalue().encode())
                file.flush()
                os.fsync(file.fileno())

    def close(self, summary: RunSummary) -> str:
        return str(self.path)


# -- passing on -------------------------------------------------------------------------------

FOLDER = "trackers"
BATCH = 500  # rows between two commits
PERIOD_S = 1.0
ENDED = ("finished", "interrupted", "failed", "killed", "broken")


class Stream:
    """One file of the run: what it has, and the checksums of what was sent."""

    def __init__(self, read: Callable[..., Any], run: Run, path: Path) -> None:
        self._read, self._run, self._path = read, run, path
        self._cursor: str | None = None
        self.lines: list[dict[str, Any]] = []
        self.sums = array("I")
        self.sent = array("I")
        self._stored = 0  # how many of `sent` are in the file

    def load(self, n: int) -> bool:
        """Read the checksums of the `n` lines that were sent before; False if some are missing."""
        self.sent = array("I")
        with suppress(FileNotFoundError):
            self.sent.frombytes(self._path.read_bytes()[: n * self.sent.itemsize])
        self._stored = len(self.sent)
        return self._stored == n

    def poll(self) -> None:
        """Read what is new; after a rewrite everything is."""
        tail = self._read(self._run, self._cursor)
        if tail.is_reset:
            self.lines, self.sums = [], array("I")
        self._cursor = tail.cursor
        self.lines += tail.rows
        texts = (json.dumps(row, sort_keys=True) for row in tail.rows)
        self.sums.extend(zlib.crc32(text.encode()) for text in texts)

    def common(self) -> int:
        """How many lines of the beginning were sent as they are now."""
        n = min(len(self.sums), len(self.sent))
        if self.sums[:n] == self.sent[:n]:
            return n
        return next(i for i in range(n) if self.sums[i] != self.sent[i])

    def keep(self, n: int) -> None:
        del self.sent[n:]
        self._stored = min(self._stored, n)

    def save(self) -> None:
        """Write the checksums of what was sent since the last time."""
        size = self.sent.itemsize
        with self._path.open("ab") as file:
            file.truncate(self._stored * size)
            file.write(self.sent[self._stored :].tobytes())
        self._stored = len(self.sent)


class Follower:
    def __init__(
        self, run: Run, name: str, options: Options | None = None, sink: Sink | None = None
    ) -> None:
        self.run, self.name = run, name
        self.folder = run.path / FOLDER
        self._state_path = self.folder / f"{name}.json"
        self._sink = sink or make_sink(name)
        self._options = options or Options()
        self.rows = Stream(query.follow_metrics, run, self.folder / f"{name}.rows")
        self.events = Stream(query.follow_events, run, self.folder / f"{name}.events")

    def send(self) -> str:
        """Send what is there and close the tracker. Returns where to look at it."""
        with self._open():
            self._pass_on()
            return self._close()

    def follow(self, period_s: float = PERIOD_S, stop: Callable[[], bool] = lambda: False) -> str:
        """Send everything until the run has ended."""
        with self._open():
            while True:
                has_ended = get_run(self.run).status in ENDED  # before reading the last rows
                n = self._pass_on()
                if has_ended or stop():
                    return self._close()
                if not n:
                    time.sleep(period_s)

    @contextmanager
    def _open(self) -> Iterator[None]:
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise TrackError(f"cannot write into {self.folder}: {error.strerror}") from None
        with _locked(self.folder / f".{self.name}.lock", self.run.id, self.name):
            state: dict[str, Any] = {}
            if self._state_path.exists():
                with suppress(RunError):  # damaged: everything is sent again
                    state = read_json(self._state_path, "")
            sent = Sent(int(state.get("rows", 0)), int(state.get("events", 0)))
            if not (self.rows.load(sent.rows) and self.events.load(sent.events)):
                state, sent = {}, Sent()  # killed while a rewind was written: from the start
            self.rows.keep(sent.rows)
            self.events.keep(sent.events)
            meta, config = self.run.meta(), query.get_config(self.run)
            subject = Subject(self.run, meta, config, self.folder, self._options)
            stored = self._sink.open(subject, state.get("sink") or {}, sent)
            self.rows.keep(stored.rows)
            self.events.keep(stored.events)
            yield

    def _pass_on(self) -> int:
        """Send what is new. Returns how many lines that were."""
        self.rows.poll()
        self.events.poll()
        kept = Sent(self.rows.common(), self.events.common())
        if kept.rows < len(self.rows.sent) or kept.events < len(self.events.sent):
            kept = self._sink.rewind(kept)
            self.rows.keep(kept.rows)
            self.events.keep(kept.events)
            self._commit()
        n = 0
        for stream, pass_on in ((self.rows, self._sink.row), (self.events, self._sink.event)):
            while (index := len(stream.sent)) < len(stream.lines):
                pass_on(index, stream.lines[index])
                stream.sent.append(stream.sums[index])
                n += 1
                if n % BATCH == 0:
                    self._commit()
        if n % BATCH:
            self._commit()
        return n

    def _commit(self, **more: Any) -> None:
        """First the tracker, then the checksums, then the state: whatever a kill leaves, the state
        never claims more than the tracker has."""
        sink = self._sink.commit()
        self.rows.save()
        self.events.save()
        state = {"rows": len(self.rows.sent), "events": len(self.events.sent), "sink": sink}
        write_atomic(self._state_path, dump_json(state | more))

    def _close(self) -> str:
        self._commit()
        summary = get_run(self.run)
        where = self._sink.close(summary)
        self._commit(where=where, closed_at=f"{summary.status} {summary.env_steps}")
        return where


@contextmanager
def _locked(path: Path, run_id: str, name: str) -> Iterator[None]:
    """One follower per run and tracker; a follower that is just ending is waited for."""
    with path.open("a+") as file:
        if not take_lock(file.fileno(), wait_s=10.0):
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise TrackError(f"{run_id} is already sent to {name} by process {pid}")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


class Launcher(Observer):
    """Starts one process per tracker when the run exists. Training does not wait for them: they
    end by themselves after the run has."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = check_names(list(names))

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        """Each follower's output is in trackers/<name>.log."""
        folder = run.path / FOLDER
        folder.mkdir(exist_ok=True)
        for name in self.names:
            words = ["track", str(run.path.absolute()), "--to", name, "--follow"]
            argv = [sys.executable, "-m", "gymnasium_solver", *words]
            with (folder / f"{name}.log").open("ab") as log:
                # A session of its own: Ctrl-C stops the training, not what sends the rest.
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
