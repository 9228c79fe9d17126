"""A cache of what was read from many small files, so that listing thousands of runs reads one.

    index = Index(root, ".index.json", version)
    for run_id in ids:
        value = index.get(run_id, stamp)          # None if not cached, or if a file has changed
        if value is None:
            index.put(run_id, stamp, value := read(run_id))
    index.save()

A stamp holds the modification times, sizes and inodes of the files that the value depends on. The
cache is a plain JSON file in the runs folder. It may be deleted at any time; a damaged one, or one
of another version, is ignored. Processes replace it as a whole: the last one wins, and whatever is
missing is read again.
"""

import json
import os
import secrets
import stat
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

FEWEST = 20
"""Entries from which on a file is written."""
SETTLED_NS = 2 * 10**9
"""Age from which on a file counts as unchanged if its stamp is: two writes within the resolution of
the clock may have the same stamp."""

Stamp = list[int]


class Index:
    def __init__(self, root: Path, name: str, version: str) -> None:
        self.path, self.version = root / name, version
        self._entries = self._load()
        self._n_loaded = len(self._entries)
        self._n_changed = 0

    def get(self, key: str, stamp: Stamp | None) -> Any:
        entry = self._entries.get(key)
        return entry[1] if stamp is not None and entry is not None and entry[0] == stamp else None

    def put(self, key: str, stamp: Stamp | None, value: Any) -> None:
        """Keep a value; nothing is kept of files that have just been written."""
        if stamp is not None and is_settled(stamp):
            self._entries[key] = [stamp, value]
            self._n_changed += 1

    def keep(self, keys: Iterable[str]) -> None:
        """Drop all other entries."""
        for key in self._entries.keys() - set(keys):
            self._n_changed += 1
            del self._entries[key]

    def save(self) -> None:
        """Write the file if enough has changed to be worth it. Nothing depends on it, so an error
        (a folder that cannot be written) is ignored."""
        n = max(len(self._entries), self._n_loaded)
        if n < FEWEST or self._n_changed <= n // 100:
            return
        body = json.dumps(self._entries, separators=(",", ":"), ensure_ascii=False)
        with suppress(OSError, UnicodeEncodeError):
            data = body.encode()
            header = json.dumps({"version": self.version, "crc": zlib.crc32(data)}).encode()
            temp = self.path.with_name(f"{self.path.name}.tmp-{secrets.token_hex(4)}")
            try:
                temp.write_bytes(header + b"\n" + data)
                os.replace(temp, self.path)
            except OSError:
                temp.unlink(missing_ok=True)
                raise

    def _load(self) -> dict[str, list[Any]]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                return {}
            header, _, body = self.path.read_bytes().partition(b"\n")
            if json.loads(header) != {"version": self.version, "crc": zlib.crc32(body)}:
                return {}
            entries: dict[str, list[Any]] = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return {}
        return entries


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
