"""Crash-safe files: atomic writes, atomic pointers, and valid JSON.

`write_atomic` and `write_pointer` leave either the old or the new content, never a mixture: they
write a temporary file, fsync it, and rename it. A pointer is a symlink, or a small text file on
file systems without symlinks.
"""

import json
import math
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from gymnasium_solver.errors import RunError

_FLOAT_TAG = "$float"


def fsync_dir(directory: Path) -> None:
    """Make renames in a folder survive a power failure; Windows cannot open folders."""
    if sys.platform == "win32":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    """Write a whole file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, or a kill at any point, sees the old or the new content."""
    temp = path.with_name(f".{path.name}.tmp-{secrets.token_hex(4)}")
    write_synced(temp, data)
    os.replace(temp, path)
    fsync_dir(path.parent)


def write_pointer(link: Path, target: str) -> None:
    """Point `link` at its sibling `target`, atomically."""
    temp = link.with_name(f".tmp-{link.name}-{secrets.token_hex(4)}")
    try:
        temp.symlink_to(target)
    except (OSError, NotImplementedError):  # symlinks are not supported or not permitted
        write_synced(temp, target.encode())
    if link.is_dir() and not link.is_symlink():  # a copy that followed symlinks made it a folder
        shutil.rmtree(link)
    os.replace(temp, link)
    fsync_dir(link.parent)


def read_pointer(link: Path) -> str | None:
    """The name stored in a pointer; None if it is missing or not a plain name."""
    try:
        target = os.readlink(link) if link.is_symlink() else link.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return target if target and target == PurePath(target).name else None


def jsonable(value: Any, *, exact: bool = False, where: str = "value") -> Any:
    """Convert a value to JSON types. NumPy and torch numbers and arrays become numbers and lists.

    A non-finite float becomes null or, with `exact`, a tagged string that `read_json` converts back
    to the same float, for state that must be restored exactly.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return {_FLOAT_TAG: repr(float(value))} if exact else None
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; JSON keys must be text")
        return {k: jsonable(v, exact=exact, where=f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v, exact=exact, where=f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return jsonable(value.tolist(), exact=exact, where=where)
    raise TypeError(f"{where} is a {type(value).__name__}; expected a JSON type")


def dump_json(value: Any, *, exact: bool = False) -> bytes:
    text = json.dumps(jsonable(value, exact=exact), indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def _restore_float(mapping: dict[str, Any]) -> Any:
    return float(mapping[_FLOAT_TAG]) if mapping.keys() == {_FLOAT_TAG} else mapping


def read_json(path: Path, fix: str) -> dict[str, Any]:
    """Read a JSON file that must contain a mapping; otherwise raise RunError with the file and
    `fix`."""
    try:
        value = json.loads(path.read_bytes(), object_hook=_restore_float)
    except FileNotFoundError:
        raise RunError(f"{path} is missing. {fix}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}. {fix}") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} contains a {type(value).__name__}, expected a mapping. {fix}")
    return value
