"""JSONL files of a run: appending whole lines, reading all of them or what was added since.

    Appender(path).write(json_line({"env_steps": 1}))
    rows = read_jsonl(run.metrics_path)
    tail = follow_jsonl(run.metrics_path)                  # all rows so far
    tail = follow_jsonl(run.metrics_path, tail.cursor)     # only the new ones

An incomplete last line (of a killed or still writing process) is ignored until it is complete.
"""

import json
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import open_regular, regular_handle
from gymnasium_solver.runs.files import json_bytes, jsonable, read_bytes, reading

_FIX = "Delete the line to use the others."
_CURSOR = re.compile(r"(\d{1,20})-(\d{1,20})-(\d{1,10})")
_CHECKED_BYTES = 64
LARGE = 100_000  # bytes from which on a faster parser is worth its import
_TEXT, _PLAIN = {str}, {int, float, str, bool, type(None)}


class Appender:
    """Appends lines, each with one unbuffered write, so that a reader sees it at once. A failed or
    interrupted write leaves no partial line behind: opening cuts off an incomplete last line."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(regular_handle(path, os.O_RDWR | os.O_CREAT), "r+b")
        self._end = _end_of_last_line(self._file)
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def write(self, line: bytes) -> None:
        """OSError if the disk is full or the file was deleted; the file is then as it was."""
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError("the file was deleted")
        try:
            n_written = self._file.write(line)
            while n_written < len(line):
                n_written += self._file.write(memoryview(line)[n_written:])
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise
        self._end += len(line)

    def close(self) -> None:
        self._file.close()


def _end_of_last_line(file: FileIO) -> int:
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@dataclass(frozen=True)
class Tail:
    """Rows that were added to a file, in order."""

    rows: list[dict[str, Any]]
    cursor: str  # where to continue; opaque, and safe in a URL
    is_reset: bool
    """The file was rewritten since the last read (a resume goes back to a checkpoint): `rows` are
    all its rows now, and what was read before is void."""


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; [] without a file. An invalid line is an error."""
    if not path.exists():
        return []
    return parse_jsonl(read_bytes(path, "Remove it, or restore the file."), path)


def tail_jsonl(path: Path, tail_bytes: int = 65_536) -> list[dict[str, Any]]:
    """The last rows, without reading all of a long file."""
    if not path.is_file():
        return []
    with reading(path, "", OSError), open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail_bytes))
        tail = file.read()
    if size > tail_bytes:
        tail = tail.partition(b"\n")[2]  # the first line is incomplete
    return parse_jsonl(tail, path)


def follow_jsonl(path: Path, cursor: str | None = None) -> Tail:
    """The rows added since `cursor`, the one of an earlier call; without one all rows.

    That a resume has rewritten the file is noticed by its inode, its size, or the bytes before the
    cursor, since a new file may have the inode of a removed one."""
    wanted = _CURSOR.fullmatch(cursor or "")
    inode, offset, checksum = (int(group) for group in wanted.groups()) if wanted else (0, 0, 0)
    if not path.is_file():
        return Tail([], "0-0-0", is_reset=offset > 0)

    def before(end: int) -> int:
        file.seek(max(0, end - _CHECKED_BYTES))
        return zlib.crc32(file.read(min(end, _CHECKED_BYTES)))

    with reading(path, "", OSError), open_regular(path) as file:
        status = os.fstat(file.fileno())
        is_same = status.st_ino == inode and offset <= status.st_size
        is_same = is_same and before(offset) == checksum
        start = offset if is_same else 0
        file.seek(start)
        new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        end = start + len(whole)
        checksum = before(end)
    rows, is_reset = parse_jsonl(whole, path), offset > 0 and not is_same
    return Tail(rows, f"{status.st_ino}-{end}-{checksum}", is_reset)


def parse_jsonl(data: bytes, path: Path) -> list[dict[str, Any]]:
    """The complete rows in bytes that were read from `path`."""
    *whole, _torn = data.split(b"\n")  # the text after the last newline is empty or incomplete
    parse = _core().from_json if len(data) > LARGE else json.loads
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            try:
                row = parse(line)
            except ValueError:  # the standard library takes half of a surrogate pair
                row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} line {number} is not JSON: {error}. {_FIX}") from None
        if not isinstance(row, dict):
            raise RunError(
                f"{path} line {number} is a {type(row).__name__}, expected a mapping. {_FIX}"
            )
        clock = row.get("env_steps")
        if clock is not None and (type(clock) is not int or not 0 <= clock < 2**63):
            raise RunError(
                f"{path} line {number} has env_steps {clock!r}, expected a whole number. {_FIX}"
            )
        rows.append(row)
    return rows


def json_line(row: Mapping[str, Any]) -> bytes:
    """A row as one line of JSON; a number that is not finite becomes null. Flat rows are written by
    pydantic's encoder: the standard library's takes eight times as long."""
    if set(map(type, row)) == _TEXT and set(map(type, row.values())) <= _PLAIN:
        with suppress(ValueError):  # a text that UTF-8 cannot hold
            return _core().to_json(row, inf_nan_mode="null") + b"\n"
    return json_bytes(jsonable(row, where="row"))


@cache
def _core() -> Any:
    """Pydantic's parser and encoder, several times as fast as the standard library's, but slow to
    import: reading a short file does not need it."""
    import pydantic_core

    return pydantic_core
