"""All runs of a folder: read once, kept in an index on disk, brought up to date.

    store = RunStore(root)
    store.select(["CartPole", "test>400"], sort_by="test")     # summaries; see runs/select.py
    first = store.since(None)                # all runs, and a cursor: for servers
    later = store.since(first.cursor)        # only what changed or went away

A run is read again when its files change, or when its process has gone.
"""

import dataclasses
import gc
import json
import os
import re
import secrets
import stat
import threading
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.paths import is_folder
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.files import read_json, reading
from gymnasium_solver.runs.jsonl import tail_jsonl
from gymnasium_solver.runs.manage import read_labels
from gymnasium_solver.runs.run import Run, live_status
from gymnasium_solver.runs.select import select, sort
from gymnasium_solver.runs.summary import CheckpointSummary, RunSummary, summary_of
from gymnasium_solver.version import __version__

INDEX, CONFIGS = ".index.json", ".configs.json"
MOST_SELECTIONS = 64
PHASES = ("evaluating", "testing", "paused")
LASTING = ("finished", "interrupted", "failed", "killed")
_OWN = ("id", "path", "config")  # not stored: they depend on where the folder is
_NAMES = [field.name for field in dataclasses.fields(RunSummary) if field.name not in _OWN]
_STATUS = _NAMES.index("status")
_DATE = re.compile(r"-(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-[0-9a-f]{4}$")
FEWEST = 20  # entries from which on an index is written
SETTLED_NS = 2 * 10**9
"""Age from which on a file counts as unchanged if its stamp is: two writes within the resolution of
the clock may have the same stamp."""

Stamp = list[int]


def read_summary(run: Run) -> RunSummary:
    """What the files of a run say; RunError if they are damaged."""
    meta = run.meta()
    status = live_status(meta)
    if status in ("running", "killed"):  # meta.json is written rarely; the metrics are newer
        meta |= _latest_counts(run, meta)
    meta["activity"] = _activity(run) if status == "running" else None
    if status == "killed":
        meta["status"] = status
    checkpoints: list[CheckpointSummary] = [
        {"env_steps": c.env_steps, "best": c.is_best, "last": c.is_last, "score": c.score}
        for c in list_checkpoints(run.checkpoints_dir)
    ]
    summary, labels = summary_of(run.path, meta, checkpoints), read_labels(run)
    tags = [printable(tag) for tag in labels.tags]
    return dataclasses.replace(summary, tags=tags, note=printable(labels.note))


def _latest_counts(run: Run, meta: dict[str, Any]) -> dict[str, Any]:
    """Counters of the last metrics row, if it is newer than meta.json."""
    try:
        rows = tail_jsonl(run.metrics_path)
    except RunError:  # reading the metrics themselves reports the damage
        return {}
    row = rows[-1] if rows else {}
    before = meta.get("env_steps")
    if (row.get("env_steps") or -1) < (before if isinstance(before, int) else 0):
        return {}
    names = {name: name for name in ("env_steps", "epoch", "wall_s")}
    names["episodes"] = "train/cnt/total_episodes"
    return {field: row[name] for field, name in names.items() if row.get(name) is not None}


def _activity(run: Run) -> dict[str, Any]:
    """What a run in training is doing, as far as its files tell."""
    row = stamp(str(run.metrics_path))
    told: dict[str, Any] = {"row_at": None if row is None else row[0] / 1e9}
    with suppress(RunError):  # there is a file only during a long evaluation
        found = read_json(run.activity_path, "") if run.activity_path.exists() else {}
        done, total = found.get("done"), found.get("of")
        if found.get("phase") in PHASES and type(done) is int and type(total) is int:
            told |= {"phase": found["phase"], "done": done, "of": total}
    return told


def summary_or_broken(run: Run) -> RunSummary:
    """A damaged folder must not hide the other runs."""
    try:
        return read_summary(run)
    except RunError as error:
        return summary_of(run.path, {"status": "broken", "stop_reason": str(error)}, [])


def read_config(run: Run) -> dict[str, Any]:
    """The resolved config that the run was started with."""
    from gymnasium_solver.config.yaml_file import parse_fields, read_text

    path = run.config_path
    with reading(path, "Restore it; without it the run cannot be repeated.", ConfigError):
        config = parse_fields(read_text(path)[0], str(path))
    if not isinstance(config, dict):
        raise RunError(f"{path} contains a {type(config).__name__}, expected a mapping of fields.")
    return config


# -- the index ------------------------------------------------------------------------------------


class Index:
    """A cache of what was read from many small files: a plain JSON file in the runs folder, from
    keys to a stamp of the files and what was read. It may be deleted at any time; a damaged one, or
    one of another version, is ignored. Processes replace it as a whole: the last one wins, and
    whatever is missing is read again. One that is not `enabled` has and keeps nothing."""

    def __init__(self, path: Path, version: str, enabled: bool) -> None:
        self.path, self.version, self.enabled = path, version, enabled
        self._entries = self._load() if enabled else {}
        self._n_loaded, self._n_changed = len(self._entries), 0

    def get(self, key: str, stamp: Stamp | None) -> Any:
        """None if the value is not known, or if a file has changed."""
        entry = self._entries.get(key)
        return entry[1] if stamp is not None and entry is not None and entry[0] == stamp else None

    def put(self, key: str, stamp: Stamp | None, value: Any) -> None:
        """Keep a value; nothing is kept of files that have just been written."""
        if stamp is not None and is_settled(stamp):
            self._entries[key] = [stamp, value]
            self._n_changed += 1

    def save(self, keys: Collection[str]) -> None:
        """Drop all other entries, and write the file if enough has changed to be worth it. Nothing
        depends on it, so an error (a folder that cannot be written) is ignored."""
        for key in self._entries.keys() - set(keys):
            self._n_changed += 1
            del self._entries[key]
        n = max(len(self._entries), self._n_loaded)
        if not self.enabled or n < FEWEST or self._n_changed <= n // 100:
            return
        body = json.dumps(self._entries, separators=(",", ":"), ensure_ascii=False)
        temp = self.path.with_name(f"{self.path.name}.tmp")  # of two writers at once the crc tells
        with suppress(OSError, UnicodeEncodeError):
            data = body.encode()
            header = json.dumps({"version": self.version, "crc": zlib.crc32(data)}).encode()
            temp.write_bytes(header + b"\n" + data)
            os.replace(temp, self.path)

    def _load(self) -> dict[str, list[Any]]:
        with suppress(OSError, ValueError, RecursionError):
            if stat.S_ISREG(self.path.stat().st_mode):
                header, _, body = self.path.read_bytes().partition(b"\n")
                if json.loads(header) == {"version": self.version, "crc": zlib.crc32(body)}:
                    entries: dict[str, list[Any]] = json.loads(body)
                    return entries
        return {}


def stamp(file: str, *folders: str) -> Stamp | None:
    """Time, size and inode of a file, and the times of folders (0 without one); None if there is no
    such file. The time of a folder changes when a file in it is created, replaced or removed."""
    try:
        found = os.stat(file)
        values = [found.st_mtime_ns, found.st_size, found.st_ino]
    except OSError:
        return None
    for folder in folders:
        try:
            values.append(os.stat(folder).st_mtime_ns)
        except OSError:
            values.append(0)
    return values


def is_settled(stamp: Stamp) -> bool:
    return time.time_ns() - max(stamp[0], *stamp[3:], 0) > SETTLED_NS


# -- all runs -------------------------------------------------------------------------------------


@dataclass
class _Entry:
    number: int  # its place in the order of discovery; never used twice
    summary: RunSummary
    stamp: Stamp
    metrics: Stamp | None
    is_settled: bool
    """Whether the files were old enough when read for their stamps to tell a later change."""
    revision: int
    config: dict[str, Any] | None = None


@dataclass(frozen=True)
class Changes:
    cursor: str
    runs: list[tuple[int, RunSummary]]  # runs that are new or have changed, with their numbers
    removed: list[int]
    is_reset: bool  # `runs` are all runs; what was known before is void


class RunStore:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.refresh_s = 0.0  # how long the last refresh took
        self._entries: dict[str, _Entry] = {}
        self._removed: dict[int, int] = {}  # number -> revision
        self._revision = 0
        self._next_number = 0
        self._boot = secrets.token_hex(4)
        self._lock = threading.RLock()
        self._refreshed_at = -1e9
        self._is_scanned = False
        self._order: tuple[int, list[_Entry]] = (-1, [])
        """The runs by age, and the revision of which that is the order."""
        self._selected: dict[tuple[str, ...], list[RunSummary]] = {}

    def since(self, cursor: str | None, max_age_s: float = 0.0) -> Changes:
        """What changed since `cursor`; everything without one, or with one of another process."""
        with self._lock:
            self.refresh(max_age_s)
            boot, _, text = (cursor or "").partition("-")
            known = int(text) if boot == self._boot and text.isdecimal() else 0
            changed = [(e.number, e.summary) for e in self._ordered() if e.revision > known]
            removed = [number for number, at in self._removed.items() if at > known]
            return Changes(self.cursor, changed, removed if known else [], is_reset=not known)

    @property
    def cursor(self) -> str:
        return f"{self._boot}-{self._revision}"

    def runs(self, max_age_s: float = 0.0) -> list[RunSummary]:
        """All runs, newest first."""
        with self._lock:
            self.refresh(max_age_s)
            return [entry.summary for entry in self._ordered()]

    def select(
        self, words: Sequence[str] = (), sort_by: str | None = None, max_age_s: float = 0.0
    ) -> list[RunSummary]:
        """The runs that all words and conditions accept, newest first or sorted by a field."""
        with self._lock:
            every = self.runs(max_age_s)
            key = (sort_by or "", *words)
            if key not in self._selected:
                found = select(every, words, self.config)
                found = found if sort_by is None else sort(found, sort_by, self.config)
                if len(self._selected) >= MOST_SELECTIONS:
                    self._selected.clear()
                self._selected[key] = found
            return self._selected[key]

    def find(self, run_id: str) -> RunSummary | None:
        """The run of this id, as of the last refresh; None if it is not in the list."""
        entry = self._entries.get(run_id)
        return None if entry is None else entry.summary

    def number(self, run_id: str) -> int:
        return self._entries[run_id].number

    def known_config(self, run_id: str) -> dict[str, Any] | None:
        """The config of a run if it has been read; None otherwise."""
        entry = self._entries.get(run_id)
        return None if entry is None else entry.config or None

    def config(self, run: RunSummary) -> dict[str, Any]:
        """The config of a run, {} if it cannot be read. The first call reads those of all runs."""
        entry = self._entries[run.id]
        if entry.config is None:
            missing = {name: e for name, e in self._entries.items() if e.config is None}
            index = Index(self.root / CONFIGS, __version__, enabled=len(missing) > 1)
            for name, one in missing.items():
                file = stamp(f"{self.root}/{name}/config.yaml")
                one.config = index.get(name, file)
                if one.config is None:
                    with suppress(RunError):
                        one.config = read_config(Run(self.root / name))
                    one.config = one.config or {}
                    index.put(name, file, one.config)
            index.save(self._entries)
        return entry.config or {}

    def refresh(self, max_age_s: float = 0.0) -> bool:
        """Look at the files, unless done less than `max_age_s` ago; True if something changed."""
        with self._lock:
            started = time.monotonic()
            # Looking takes at most about a tenth of the time, however many runs there are.
            if max_age_s and started - self._refreshed_at < max(max_age_s, 9 * self.refresh_s):
                return False
            before = self._revision
            with nullcontext() if self._is_scanned else _without_collection():
                self._scan()
            self._is_scanned = True
            self._refreshed_at = time.monotonic()
            self.refresh_s = self._refreshed_at - started
            return self._revision != before

    def _scan(self) -> None:
        """Only the first one uses the index: later ones know the runs."""
        # A killed run is known as such on its own machine alone.
        version = f"{__version__} 2 {machine.hostname()} {','.join(_NAMES)}"
        index = Index(self.root / INDEX, version, enabled=not self._is_scanned)
        revision, is_any = self._revision + 1, False
        folder, names = str(self.root), set()
        for name in os.listdir(folder) if is_folder(self.root) else ():
            if name[0] in "@.":
                continue
            run = f"{folder}/{name}"
            # What a summary depends on: labels.json is replaced in the folder of the run.
            files = stamp(f"{run}/meta.json", run, f"{run}/checkpoints")
            if files is None:
                continue  # not a run
            names.add(name)
            if self._has_changed(name, files):
                is_any |= self._take(name, files, index, revision)
        for name in [name for name in self._entries if name not in names]:
            self._removed[self._entries.pop(name).number] = revision
            is_any = True
        if is_any:
            self._revision = revision
        index.save(names)

    def _has_changed(self, name: str, files: Stamp) -> bool:
        entry = self._entries.get(name)
        if entry is None or entry.stamp != files or not entry.is_settled:
            return True
        status = entry.summary.status
        if status in LASTING and status != "killed":
            return False
        if entry.metrics != self._metrics_stamp(name):
            return True
        if status not in ("created", "running"):
            return False
        try:
            return live_status(Run(self.root / name).meta()) != status  # its process may be gone
        except RunError:
            return True

    def _metrics_stamp(self, name: str) -> Stamp | None:
        """The counts of a killed run are those of its last row of metrics."""
        return stamp(f"{self.root}/{name}/metrics.jsonl")

    def _take(self, name: str, files: Stamp, index: Index, revision: int) -> bool:
        """Read one run. False if it is what it was."""
        stored = index.get(name, files)
        if stored is not None and stored[_STATUS] == "killed":
            stored = stored if stored[-1] == self._metrics_stamp(name) else None
        if stored is None:
            metrics = self._metrics_stamp(name)
            summary = summary_or_broken(Run(self.root / name))
            if summary.status in LASTING:
                values = [getattr(summary, name) for name in _NAMES]
                index.put(name, files, [*values, metrics if summary.status == "killed" else None])
        else:
            *values, metrics = stored
            fields = dict(zip(_NAMES, values, strict=True))
            summary = RunSummary(id=name, path=f"{self.root}{os.sep}{name}", **fields)
        before = self._entries.get(name)
        if before is not None and before.summary == summary:
            # In place: the order holds the same objects.
            before.stamp, before.metrics, before.is_settled = files, metrics, is_settled(files)
            return False
        number = self._next_number if before is None else before.number
        self._next_number += before is None
        self._entries[name] = _Entry(number, summary, files, metrics, is_settled(files), revision)
        return True

    def _ordered(self) -> list[_Entry]:
        if self._order[0] != self._revision:
            entries = self._entries.values()
            by_age = sorted(entries, key=lambda e: _created(e.summary), reverse=True)
            self._order = (self._revision, by_age)
            self._selected.clear()
        return self._order[1]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Thousands of new objects, none of them garbage, would make the collector look at all of them
    again and again: a fifth of the time of a listing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _created(run: RunSummary) -> tuple[str, str]:
    """Sort key: when the run was created; of a broken run its id may tell."""
    if run.created_at:
        return run.created_at, run.id
    date = _DATE.search(run.id)
    return date.expand(r"\1-\2-\3T\4:\5:\6") if date else "", run.id
