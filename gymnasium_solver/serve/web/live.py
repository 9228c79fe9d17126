"""Sends what changes on the disk to the open pages.

Files are looked at only while a page follows them: metrics, events and logs of the runs on a page
several times a second, the list of all runs about once a second, less often if that takes long.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from gymnasium_solver.runs.catalogue import Catalogue
from gymnasium_solver.serve.web.respond import json_bytes
from gymnasium_solver.serve.web.rows import COLUMNS, row
from gymnasium_solver.serve.web.text_tail import follow_text

TICK_S = 0.2
SCAN_S = 1.0
SCAN_SHARE = 10  # a scan that takes 0.3 s is repeated every 3 s
PING_S = 15.0

Stamp = tuple[int, int, int] | None


@dataclass
class Wanted:
    """What one page follows."""

    cursor: str | None = None
    """Of the list of runs; None: not followed."""
    files: dict[Path, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """File -> (name of the event for a change, its data)."""
    texts: dict[Path, tuple[str, dict[str, Any], str | None]] = field(default_factory=dict)
    """The same for text whose new lines are sent, with the cursor to begin at."""


class Live:
    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._paths: Counter[Path] = Counter()
        self._stamps: dict[Path, Stamp] = {}
        self._n_lists = 0
        self._task: asyncio.Task[None] | None = None
        self._ticked: asyncio.Condition | None = None
        self._n_ticks = 0
        self._is_closed = False
        self._encoded: dict[str, tuple[str, bytes]] = {}

    @property
    def n_followers(self) -> int:
        return self._n_lists + sum(self._paths.values())

    async def follow(self, wanted: Wanted) -> AsyncIterator[bytes]:
        """Events in the format of server-sent events, until the reader goes away."""
        paths = [*wanted.files, *wanted.texts]
        self._join(paths, wanted)
        try:
            yield b"retry: 1000\n\n"
            seen = await run_in_threadpool(lambda: {path: _stamp(path) for path in wanted.files})
            texts = [_Text(path, *about) for path, about in wanted.texts.items()]
            last_sent = time.monotonic()
            while not self._is_closed:
                parts = self._file_events(wanted, seen)
                if wanted.cursor is not None and wanted.cursor != self.catalogue.cursor:
                    parts.append(await self._runs_event(wanted))
                for text in texts:
                    if text.has_changed(self._stamps):
                        parts.append(await run_in_threadpool(text.event))
                now = time.monotonic()
                if any(parts) or now - last_sent > PING_S:
                    yield b"".join(parts) or b": ping\n\n"
                    last_sent = now
                await self._next_tick()
        finally:
            self._leave(paths, wanted)

    def close(self) -> None:
        """End all streams, within a tick."""
        self._is_closed = True

    def _file_events(self, wanted: Wanted, seen: dict[Path, Stamp]) -> list[bytes]:
        parts = []
        for path, (name, data) in wanted.files.items():
            stamp = self._stamps.get(path, seen[path])
            if stamp != seen[path]:
                seen[path] = stamp
                parts.append(event(name, data))
        return parts

    async def _runs_event(self, wanted: Wanted) -> bytes:
        """The change from this page's cursor; pages with the same cursor share its text."""
        known = self._encoded.get(str(wanted.cursor))
        if known is None or known[0] != self.catalogue.cursor:
            changes = await run_in_threadpool(self.catalogue.since, wanted.cursor, 3600.0)
            data = event("runs", changes_json(changes))
            if len(self._encoded) > 64:
                self._encoded.clear()
            known = self._encoded[str(wanted.cursor)] = (changes.cursor, data)
        wanted.cursor = known[0]
        return known[1]

    # --- one task looks at the files for all pages

    def _join(self, paths: list[Path], wanted: Wanted) -> None:
        self._paths.update(paths)
        self._n_lists += wanted.cursor is not None
        if self._ticked is None:
            self._ticked = asyncio.Condition()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def _leave(self, paths: list[Path], wanted: Wanted) -> None:
        self._paths.subtract(paths)
        self._paths += Counter()  # drops those that nobody follows
        self._n_lists -= wanted.cursor is not None
        self._stamps = {path: s for path, s in self._stamps.items() if path in self._paths}

    async def _watch(self) -> None:
        next_scan = 0.0
        while self.n_followers:
            paths = list(self._paths)
            is_due = self._n_lists > 0 and time.monotonic() >= next_scan
            self._stamps |= await run_in_threadpool(self._look, paths, is_due)
            if is_due:
                wait = max(SCAN_S, SCAN_SHARE * self.catalogue.refresh_s)
                next_scan = time.monotonic() + wait
            assert self._ticked is not None
            async with self._ticked:
                self._n_ticks += 1
                self._ticked.notify_all()
            await asyncio.sleep(TICK_S)

    def _look(self, paths: list[Path], is_due: bool) -> dict[Path, Stamp]:
        if is_due:
            self.catalogue.refresh()
        return {path: _stamp(path) for path in paths}

    async def _next_tick(self) -> None:
        assert self._ticked is not None
        async with self._ticked:
            before = self._n_ticks
            await self._ticked.wait_for(lambda: self._n_ticks != before)


class _Text:
    """A text that one page follows."""

    def __init__(self, path: Path, name: str, data: dict[str, Any], cursor: str | None) -> None:
        self.path, self.name, self.data, self.cursor = path, name, data, cursor
        self._seen: Any = ()

    def has_changed(self, stamps: dict[Path, Stamp]) -> bool:
        if self.path not in stamps or stamps[self.path] == self._seen:
            return False
        self._seen = stamps[self.path]
        return True

    def event(self) -> bytes:
        tail = follow_text(self.path, self.cursor)
        self.cursor = tail.cursor
        if not tail.text and not tail.is_reset:
            return b""
        found = {"text": tail.text, "reset": tail.is_reset, "cursor": tail.cursor}
        return event(self.name, self.data | found)


def changes_json(changes: Any) -> dict[str, Any]:
    return {
        "cursor": changes.cursor,
        "columns": COLUMNS,
        "rows": [row(number, run) for number, run in changes.runs],
        "removed": changes.removed,
        "reset": changes.is_reset,
    }


def event(name: str, data: Any) -> bytes:
    """JSON has no line breaks outside of strings, and inside they are escaped."""
    return b"event: " + name.encode() + b"\ndata: " + json_bytes(data) + b"\n\n"


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
