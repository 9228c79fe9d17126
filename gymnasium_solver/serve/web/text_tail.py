"""Text that is appended to a file, such as a log, from where the last read ended."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gymnasium_solver.printable import printable_lines

_CURSOR = re.compile(r"(\d{1,20})-(\d{1,20})")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
MOST_BYTES = 400_000
"""Of the end of a long file that is read first."""


@dataclass(frozen=True)
class TextTail:
    text: str
    cursor: str
    is_reset: bool
    """The file was replaced or cut: `text` begins anew."""


def follow_text(path: Path, cursor: str | None = None, most: int = MOST_BYTES) -> TextTail:
    """The text added since `cursor`; without one the end of the file. Only whole lines: a character
    is never cut in two. Escape sequences are removed; a line that a progress bar rewrote with a
    carriage return becomes its last version."""
    wanted = _CURSOR.fullmatch(cursor or "")
    inode, offset = (int(group) for group in wanted.groups()) if wanted else (0, 0)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            is_same = status.st_ino == inode and offset <= status.st_size
            start = offset if is_same else max(0, status.st_size - most)
            file.seek(start)
            data = file.read(most)
    except OSError:
        return TextTail("", "0-0", is_reset=offset > 0)
    end = data.rfind(b"\n") + 1
    whole = data[:end]
    if start > 0 and not is_same:
        whole = whole.partition(b"\n")[2]  # begins in the middle of a line
    text = _ANSI.sub("", whole.decode(errors="replace"))
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    shown = printable_lines("\n".join(lines))
    return TextTail(shown, f"{status.st_ino}-{start + end}", is_reset=offset > 0 and not is_same)
