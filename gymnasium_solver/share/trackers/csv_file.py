"""A CSV file with one line per row of metrics; tests and alerts are rows too."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.paths import cannot_write_file
from gymnasium_solver.runs.curves import CLOCK, LOGGED_AT, event_rows
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.share.trackers.sink import Sent, Sink, Subject


class CsvSink(Sink):
    """The file is cut to what is known to be complete, and grows from there. A new metric is a new
    column, for which the file is written anew."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        default = subject.folder / "metrics.csv"
        self.path = default if subject.options.out is None else subject.options.out
        self._columns: list[str] = list(CLOCK)
        self._buffer: list[dict[str, Any]] = []
        is_same = state.get("path") == str(self.path.absolute())
        if not is_same or not self._take_up(int(state.get("size", 0)), state.get("columns")):
            self._start()
            return Sent()
        return sent

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

    def _start(self) -> None:
        self._columns = list(CLOCK)
        self._write_whole([])

    def rewind(self, kept: Sent) -> Sent:
        self._buffer.clear()
        self._start()
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        self._buffer.append({k: v for k, v in row.items() if k != LOGGED_AT})

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        self._buffer += event_rows([event], self._subject.run.meta())

    def commit(self) -> dict[str, Any]:
        new = dict.fromkeys(name for row in self._buffer for name in row)
        more = [name for name in new if name not in self._columns]
        if more:
            with self.path.open(newline="", encoding="utf-8") as file:
                old: list[dict[str, Any]] = list(csv.DictReader(file))
            self._columns += more
            self._write_whole([*old, *self._buffer])
        elif self._buffer:
            self._append(self._text(self._buffer))
        self._buffer.clear()
        size = self.path.stat().st_size
        return {"path": str(self.path.absolute()), "size": size, "columns": self._columns}

    def _text(self, rows: list[dict[str, Any]], head: bool = False) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n")
        if head:
            writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
        return text.getvalue().encode()

    def _write_whole(self, rows: list[dict[str, Any]]) -> None:
        temp = self.path.with_name(f".{self.path.name}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _write(temp, self._text(rows, head=True), "wb")
            os.replace(temp, self.path)
        except OSError as error:
            raise cannot_write_file("the CSV", self.path, error) from None

    def _append(self, data: bytes) -> None:
        try:
            _write(self.path, data, "ab")
        except OSError as error:
            raise cannot_write_file("the CSV", self.path, error) from None

    def close(self, summary: RunSummary) -> str:
        return str(self.path)


def _write(path: Path, data: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
