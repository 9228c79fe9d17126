"""The runs of a folder, kept in memory and brought up to date: for servers that list them often.

    catalogue = Catalogue(root)
    first = catalogue.since(None)             # all runs, and a cursor
    later = catalogue.since(first.cursor)     # only what changed or went away

A run that has not changed costs a few looks at its files; a run in training is read again when its
files change, or when its process has gone.
"""

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.index import SETTLED_NS, Stamp
from gymnasium_solver.runs.listing import (
    LASTING,
    created_key,
    folders,
    metrics_stamp,
    run_stamp,
    summaries,
)
from gymnasium_solver.runs.query import configs_of, get_config, summary_or_broken
from gymnasium_solver.runs.run import Run, live_status
from gymnasium_solver.runs.select import select, sort
from gymnasium_solver.runs.summary import RunSummary

MOST_SELECTIONS = 64
_ALIVE = ("status", "pid", "pid_started", "machine")


@dataclass
class _Entry:
    number: int
    """Its place in the order of discovery; never used twice."""
    summary: RunSummary
    stamp: Stamp
    metrics: Stamp | None
    is_settled: bool
    """Whether the files were old enough when read for their stamps to tell a later change."""
    alive: dict[str, Any] | None
    """The process of a run in training, as in its meta.json."""
    revision: int
    config: dict[str, Any] | None = None


@dataclass(frozen=True)
class Changes:
    cursor: str
    runs: list[tuple[int, RunSummary]]
    """Runs that are new or have changed, with their numbers."""
    removed: list[int]
    is_reset: bool
    """`runs` are all runs; what was known before is void."""


class Catalogue:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.refresh_s = 0.0
        """How long the last refresh took."""
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

    # --- reading

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
        self, words: Sequence[str], sort_by: str | None = None, max_age_s: float = 0.0
    ) -> list[RunSummary]:
        """The runs that all words and conditions accept; see `runs/select.py`."""
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

    def number(self, run_id: str) -> int:
        return self._entries[run_id].number

    def config(self, run: RunSummary) -> dict[str, Any]:
        """The config of a run, {} if it cannot be read. The first call reads those of all runs."""
        entry = self._entries[run.id]
        if entry.config is None:
            missing = [e for e in self._entries.values() if e.config is None]
            if len(missing) > 1:
                read = configs_of([e.summary for e in missing])
                for one in missing:
                    one.config = read(one.summary)
            else:
                entry.config = _config_or_empty(Run(self.root / run.id))
        return entry.config or {}

    # --- bringing up to date

    def refresh(self, max_age_s: float = 0.0) -> bool:
        """Look at the files, unless that was done less than `max_age_s` ago. True if something has
        changed."""
        with self._lock:
            started = time.monotonic()
            # Looking takes at most about a tenth of the time, however many runs there are.
            if max_age_s and started - self._refreshed_at < max(max_age_s, 9 * self.refresh_s):
                return False
            before = self._revision
            self._scan()
            self._refreshed_at = time.monotonic()
            self.refresh_s = self._refreshed_at - started
            return self._revision != before

    def _scan(self) -> None:
        folder = str(self.root)
        stamps = {}
        for name in folders(self.root):
            files = run_stamp(f"{folder}/{name}")
            if files is not None:
                stamps[name] = files
        if not self._is_scanned:
            found = {summary.id: summary for summary in summaries(self.root, summary_or_broken)}
            self._is_scanned = True
        else:
            found = {}
        changed = [name for name, files in stamps.items() if self._has_changed(name, files)]
        gone = [name for name in self._entries if name not in stamps]
        if not changed and not gone:
            return
        revision = self._revision + 1
        is_any = False
        for name in changed:
            is_any |= self._take(name, stamps[name], found.get(name), revision)
        for name in gone:
            self._removed[self._entries.pop(name).number] = revision
            is_any = True
        if is_any:
            self._revision = revision

    def _has_changed(self, name: str, files: Stamp) -> bool:
        entry = self._entries.get(name)
        if entry is None or entry.stamp != files or not entry.is_settled:
            return True
        if entry.summary.status in LASTING and entry.summary.status != "killed":
            return False
        if entry.metrics != metrics_stamp(str(self.root), name):
            return True
        return entry.alive is not None and live_status(entry.alive) != entry.summary.status

    def _take(self, name: str, files: Stamp, found: RunSummary | None, revision: int) -> bool:
        """Read one run. False if it is what it was."""
        run = Run(self.root / name)
        metrics = metrics_stamp(str(self.root), name)
        summary = found if found is not None else summary_or_broken(run)
        before = self._entries.get(name)
        newest = max(files[0], *files[3:])
        entry = _Entry(
            number=self._next_number if before is None else before.number,
            summary=summary,
            stamp=files,
            metrics=metrics,
            is_settled=time.time_ns() - newest > SETTLED_NS,
            alive=None if summary.status in LASTING else _alive(run),
            revision=revision,
        )
        self._next_number += before is None
        is_same = before is not None and before.summary == summary
        if before is not None and is_same:  # in place: the order holds the same objects
            before.stamp, before.metrics = entry.stamp, entry.metrics
            before.is_settled, before.alive = entry.is_settled, entry.alive
        else:
            self._entries[name] = entry
        return not is_same

    def _ordered(self) -> list[_Entry]:
        if self._order[0] != self._revision:
            entries = self._entries.values()
            by_age = sorted(entries, key=lambda e: created_key(e.summary), reverse=True)
            self._order = (self._revision, by_age)
            self._selected.clear()
        return self._order[1]


def _alive(run: Run) -> dict[str, Any] | None:
    try:
        meta = run.meta()
    except RunError:
        return None
    return {name: meta.get(name) for name in _ALIVE}


def _config_or_empty(run: Run) -> dict[str, Any]:
    try:
        return get_config(run)
    except RunError:
        return {}
