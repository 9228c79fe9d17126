"""Files that survive a kill: atomic writes, atomic pointers, and JSON that is always valid.

`write_atomic` and `write_pointer` leave either the old content or the new one, never a mixture:
write beside, fsync, rename over. A pointer is a symlink, or a small text file where the file
system has no symlinks.
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
    """Make renames inside a folder survive a power cut; Windows cannot open folders."""
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
    """Replace a file so that a reader, or a kill at any moment, sees the old or the new one."""
    temp = path.with_name(f".{path.name}.tmp-{secrets.token_hex(4)}")
    write_synced(temp, data)
    os.replace(temp, path)
    fsync_dir(path.parent)


def write_pointer(link: Path, target: str) -> None:
    """Point `link` at its sibling `target`, atomically."""
    temp = link.with_name(f".tmp-{link.name}-{secrets.token_hex(4)}")
    try:
        temp.symlink_to(target)
    except (OSError, NotImplementedError):  # no symlinks on this file system, or not for this user
        write_synced(temp, target.encode())
    if link.is_dir() and not link.is_symlink():  # a copy that followed links made it a real folder
        shutil.rmtree(link)
    os.replace(temp, link)
    fsync_dir(link.parent)


def read_pointer(link: Path) -> str | None:
    """The name a pointer holds, or None where there is none (or it is not a plain name)."""
    try:
        target = os.readlink(link) if link.is_symlink() else link.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return target if target and target == PurePath(target).name else None


def jsonable(value: Any, *, exact: bool = False, where: str = "value") -> Any:
    """The value in JSON types. NumPy and torch numbers and arrays become numbers and lists.

    A float that is not finite becomes null; with `exact`, a tagged string that `read_json`
    turns back into the same float, for state that has to come back as it was.
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
                raise TypeError(f"{where} has the key {key!r}; JSON takes only text as keys")
        return {k: jsonable(v, exact=exact, where=f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v, exact=exact, where=f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return jsonable(value.tolist(), exact=exact, where=where)
    raise TypeError(f"{where} is a {type(value).__name__}; expected what JSON can hold")


def dump_json(value: Any, *, exact: bool = False) -> bytes:
    text = json.dumps(jsonable(value, exact=exact), indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def _restore_float(mapping: dict[str, Any]) -> Any:
    return float(mapping[_FLOAT_TAG]) if mapping.keys() == {_FLOAT_TAG} else mapping


def read_json(path: Path, fix: str) -> dict[str, Any]:
    """A JSON file that must hold a mapping; RunError names the file and `fix` when it does not."""
    try:
        value = json.loads(path.read_bytes(), object_hook=_restore_float)
    except FileNotFoundError:
        raise RunError(f"{path} is missing. {fix}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}. {fix}") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} holds a {type(value).__name__}, expected a mapping. {fix}")
    return value
