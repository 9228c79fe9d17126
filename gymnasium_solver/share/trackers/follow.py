"""Passes the rows and events of a run to a tracker, each exactly once.

    Follower(run, "tensorboard").send()              # all that is there now
    Follower(run, "wandb").follow()                  # until the run has ended
    Launcher(["wandb"])                              # observer: follows a training from its start

What was sent is kept in `trackers/<name>.json` and, as one checksum per line, in `<name>.rows` and
`<name>.events`. A follower that is started again compares the lines of the run with these
checksums: a common beginning is not sent again, and where they differ a resume has rewritten the
run, so the tracker is taken back to there.
"""

import json
import os
import subprocess
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import dump_json, read_json, write_atomic
from gymnasium_solver.runs.query import follow_events, follow_metrics, get_config, get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.trackers.sink import (
    Options,
    Sent,
    Sink,
    Subject,
    TrackError,
    check_names,
    make_sink,
)
from gymnasium_solver.training.observer import Observer, TrainInfo

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
        known = array("I")
        with suppress(FileNotFoundError):
            known.frombytes(self._path.read_bytes()[: n * known.itemsize])
        self.sent, self._stored = known, len(known)
        return len(known) == n

    def poll(self) -> None:
        """Read what is new; after a rewrite everything is."""
        tail = self._read(self._run, self._cursor)
        if tail.is_reset:
            self.lines, self.sums = [], array("I")
        self._cursor = tail.cursor
        self.lines += tail.rows
        self.sums.extend(_checksum(row) for row in tail.rows)

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


def _checksum(row: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(row, sort_keys=True).encode())


class Follower:
    def __init__(
        self, run: Run, name: str, options: Options | None = None, sink: Sink | None = None
    ) -> None:
        self.run, self.name = run, name
        self.folder = run.path / FOLDER
        self._state_path = self.folder / f"{name}.json"
        self._sink = sink or make_sink(name)
        self._options = options or Options()
        self.rows = Stream(follow_metrics, run, self.folder / f"{name}.rows")
        self.events = Stream(follow_events, run, self.folder / f"{name}.events")

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
            state = self._state()
            sent = Sent(int(state.get("rows", 0)), int(state.get("events", 0)))
            if not (self.rows.load(sent.rows) and self.events.load(sent.events)):
                state, sent = {}, Sent()  # killed while a rewind was written: from the start
            self.rows.keep(sent.rows)
            self.events.keep(sent.events)
            meta, config = self.run.meta(), get_config(self.run)
            subject = Subject(self.run, meta, config, self.folder, self._options)
            stored = self._sink.open(subject, state.get("sink") or {}, sent)
            self.rows.keep(stored.rows)
            self.events.keep(stored.events)
            yield

    def _state(self) -> dict[str, Any]:
        if not self._state_path.exists():
            return {}
        try:
            return read_json(self._state_path, "")
        except RunError:  # damaged: everything is sent again
            return {}

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
        for attempt in range(100 if fcntl is not None else 0):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 99:
                    file.seek(0)
                    pid = file.read().strip() or "unknown"
                    raise TrackError(
                        f"{run_id} is already sent to {name} by process {pid}"
                    ) from None
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
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
            with (folder / f"{name}.log").open("ab") as log:
                subprocess.Popen(
                    [sys.executable, "-m", "gymnasium_solver", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C stops the training, not what sends the rest
                )
