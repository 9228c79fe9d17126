"""Appending whole lines to a file: a failed or interrupted write leaves no partial line behind."""

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path


class Appender:
    """Appends lines, each with one unbuffered write, so that a reader sees it at once.

    Opening cuts off an incomplete last line, which a killed process may have left.
    """

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file: FileIO = path.open("r+b", buffering=0)
        self._end = _end_of_last_line(self._file)
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def write(self, line: bytes) -> None:
        """OSError if the disk is full or the file was deleted meanwhile; the file is then as it was
        before."""
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
