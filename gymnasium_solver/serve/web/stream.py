"""What changes on the disk, as server-sent events for the open pages.

Files are looked at only while a page follows them: metrics, events and logs of the runs on a page
several times a second, the list of all runs about once a second, less often if that takes long.
"""

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from gymnasium_solver.paths import open_regular
from gymnasium_solver.printable import printable_lines
from gymnasium_solver.runs.store import RunStore, stamp
from gymnasium_solver.runs.summary import RunSummary
from gymnasium_solver.serve.questions import Kept, json_text

TICK_S = 0.2
SCAN_S = 1.0
SCAN_SHARE = 10  # a scan that takes 0.3 s is repeated every 3 s
PING_S = 15.0
MOST_LISTS = 16
MOST_TEXT_BYTES = 400_000  # the end of a long file, read first
LONGEST_NOTE = 200
_OWN = (
    "id", "env_id", "algo_id", "variant", "seed", "created_at", "status", "stop_reason", "solved",
    "env_steps", "max_env_steps", "episodes", "wall_s", "threshold", "tags",
    "experiment", "activity",
)  # fmt: skip
COLUMNS = ("n", *_OWN, "changed", "note", "best", "test", "stderr", "episodes_tested")
LONGEST_VALUE = 60
_values = attrgetter(*_OWN)
_CURSOR = re.compile(r"(\d{1,20})-(\d{1,20})")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


Look = Callable[[], str]  # reads a file and returns the event about what is new in it, or nothing


class RunList:
    """The list of all runs for many pages: one of them looks at the disk for all."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.is_closed = False  # ends all streams, within a tick
        self._next_scan = 0.0
        self._encoded: Kept[tuple[str, str]] = Kept(MOST_LISTS)

    def since(self, cursor: str | None, max_age_s: float) -> tuple[str, str]:
        """The new cursor, and as JSON what changed since the old one, or all runs without one.
        Pages with the same cursor share the text."""
        self.store.refresh(max_age_s)
        return self._encoded.get((cursor, self.store.cursor), lambda: self._since(cursor))

    def _since(self, cursor: str | None) -> tuple[str, str]:
        changes = self.store.since(cursor, 3600.0)
        told = {"cursor": changes.cursor, "columns": COLUMNS, "removed": changes.removed}
        told["rows"] = [row(number, run) for number, run in changes.runs]
        return changes.cursor, json_text(told | {"reset": changes.is_reset})

    async def follow(self, cursor: str | None, looks: Sequence[Look]) -> AsyncIterator[bytes]:
        """Server-sent events, until the reader goes away. `cursor`: the state of the list that the
        page has; None: it does not follow the list."""
        yield b"retry: 1000\n\n"
        last_sent = time.monotonic()
        while not self.is_closed:
            if cursor is not None and time.monotonic() >= self._next_scan:
                await self._scan()
            told = await run_in_threadpool(lambda: "".join(look() for look in looks))
            if cursor is not None and cursor != self.store.cursor:
                cursor, text = await run_in_threadpool(self.since, cursor, 3600.0)
                told += event("runs", text)
            now = time.monotonic()
            if told or now - last_sent > PING_S:
                yield (told or ": ping\n\n").encode(errors="replace")
                last_sent = now
            await asyncio.sleep(TICK_S)

    async def _scan(self) -> None:
        self._next_scan = math.inf  # the other pages need not look meanwhile
        try:
            await run_in_threadpool(self.store.refresh)
        finally:
            wait = max(SCAN_S, SCAN_SHARE * self.store.refresh_s)
            self._next_scan = time.monotonic() + wait


def changes_of(path: Path, name: str, data: dict[str, Any]) -> Look:
    """An event whenever the file is another one."""
    seen = stamp(str(path))

    def look() -> str:
        nonlocal seen
        before, seen = seen, stamp(str(path))
        return event(name, json_text(data)) if seen != before else ""

    return look


def lines_of(path: Path, name: str, data: dict[str, Any], cursor: str | None) -> Look:
    """An event with the lines that were added, from a cursor on."""
    seen: Any = ()

    def look() -> str:
        nonlocal seen, cursor
        before, seen = seen, stamp(str(path))
        if seen == before:
            return ""
        tail = follow_text(path, cursor)
        cursor = tail["cursor"]
        return event(name, json_text(data | tail)) if tail["text"] or tail["reset"] else ""

    return look


def row(number: int, run: RunSummary) -> list[Any]:
    """The values of COLUMNS, short: thousands of runs travel at once."""
    test = [run.test[n] for n in ("mean", "stderr", "episodes")] if run.test else [None] * 3
    note = run.note[:LONGEST_NOTE]
    return [number, *_values(run), _short(run.changed), note, run.best_score, *test]


def _short(changed: dict[str, Any] | None) -> dict[str, Any] | None:
    """Values that fit into a cell: of a long one its beginning, as text."""
    if changed is None:
        return None
    texts = {n: v if isinstance(v, str) else json_text(v) for n, v in changed.items()}
    return {
        name: value if len(texts[name]) <= LONGEST_VALUE else f"{texts[name][:LONGEST_VALUE]}…"
        for name, value in changed.items()
    }


def event(name: str, data: str) -> str:
    """JSON has no line breaks outside of strings, and inside they are escaped."""
    return f"event: {name}\ndata: {data}\n\n"


def follow_text(
    path: Path, cursor: str | None = None, most: int = MOST_TEXT_BYTES
) -> dict[str, Any]:
    """The text added since `cursor`, without one the end of the file; the new cursor; whether the
    file was replaced or cut, so that the text begins anew. Only whole lines: a character is never
    cut in two. Escape sequences are removed; a line that a progress bar rewrote with a carriage
    return becomes its last version."""
    wanted = _CURSOR.fullmatch(cursor or "")
    inode, offset = (int(group) for group in wanted.groups()) if wanted else (0, 0)
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            is_same = status.st_ino == inode and offset <= status.st_size
            start = offset if is_same else max(0, status.st_size - most)
            file.seek(start)
            data = file.read(most)
    except OSError:
        return {"text": "", "cursor": "0-0", "reset": offset > 0}
    end = data.rfind(b"\n") + 1
    whole = data[:end]
    if start > 0 and not is_same:
        whole = whole.partition(b"\n")[2]  # begins in the middle of a line
    text = _ANSI.sub("", whole.decode(errors="replace"))
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return {
        "text": printable_lines("\n".join(lines)),
        "cursor": f"{status.st_ino}-{start + end}",
        "reset": offset > 0 and not is_same,
    }
