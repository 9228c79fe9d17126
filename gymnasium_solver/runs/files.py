"""Crash-safe files: atomic writes, atomic pointers, locks, and valid JSON.

`write_atomic` and `write_pointer` leave either the old or the new content, never a mixture: they
write a temporary file, fsync it, and rename it. A pointer is a symlink, or a small text file on
file systems without symlinks.

The operating system releases a lock (flock on the file `.lock`) when its process ends, also by
`kill -9`. Where there are no such locks, only the process recorded in meta.json can be checked.
"""

import json
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.paths import read_regular

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_FLOAT_TAG = "$float"
_held: set[int] = set()


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
    try:
        write_synced(temp, data)
        os.replace(temp, path)
    except OSError:
        with suppress(OSError):  # on a full disk the partial file would take the space that is left
            temp.unlink()
        raise
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
        target = os.readlink(link) if link.is_symlink() else read_regular(link).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return target if target and target == PurePath(target).name else None


def cannot_write(what: str, place: Path, error: Exception) -> WriteError:
    """The error for a failed write into a run folder; the command line prints it as one line."""
    if isinstance(error, FileNotFoundError):
        reason, fix = "the folder is gone", "It was deleted or moved while the run was writing."
    else:
        reason = str(getattr(error, "strerror", None) or error)
        fix = "Earlier checkpoints are intact; free some space or check permissions, then resume."
    return WriteError(f"{what} cannot be written to {place}: {reason}. {fix}")


@contextmanager
def writing(what: str, place: Path, *others: type[Exception]) -> Iterator[None]:
    """WriteError if the block fails to write: OSError, and errors of the types in `others`."""
    failures: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except failures as error:
        raise cannot_write(what, place, error) from error


def take_lock(handle: int, wait_s: float = math.inf) -> bool:
    """Lock an open file until it is closed or its process ends; False if another process has it all
    the time. Without locks (Windows, some file systems) everybody gets it."""
    deadline = time.monotonic() + wait_s
    while fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if math.isinf(wait_s) else fcntl.LOCK_NB))
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        except OSError:
            break
    return True


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder; RunError, with the process that has it, if it is taken."""
    if fcntl is None:
        yield
        return
    with writing("the lock", run):
        handle = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not take_lock(handle, wait_s=0.0):
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
            process = f"process {pid}" if pid.isdecimal() else "another process"
            raise RunError(
                f"{run.name} is still running in {process}. Stop it before resuming, or start a "
                "new run with `gsolve train`."
            )
        with writing("the lock", run):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        _held.add(handle)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def lock_holder(folder: Path) -> int | None:
    """The process that holds the lock of a folder; None if nobody does, or if it is unknown."""
    with suppress(OSError, ValueError):
        return int((folder / LOCK).read_bytes()[:20]) if is_locked(folder) else None
    return None


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with locked(folder):
            return False
    except RunError:
        return True


def _close_in_child() -> None:
    """A forked worker would keep the lock after its parent was killed."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def picked(thing: object, names: str) -> dict[str, Any]:
    """Attributes of an object, or values of a mapping, by name; `test=test_mean`: one under another
    name."""
    found: dict[str, Any] = {}
    for text in names.split():
        name, _, own = text.partition("=")
        own = own or name
        found[name] = thing.get(own) if isinstance(thing, Mapping) else getattr(thing, own)
    return found


def jsonable(value: Any, *, exact: bool = False, where: str = "value") -> Any:
    """Convert a value to JSON types. NumPy and torch numbers and arrays become numbers and lists.
    A non-finite float becomes null or, with `exact`, a tagged string that `read_json` restores."""
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
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        return jsonable(named, exact=exact, where=where)
    if hasattr(value, "tolist"):
        return jsonable(value.tolist(), exact=exact, where=where)
    raise TypeError(f"{where} is a {type(value).__name__}; expected a JSON type")


def dump_json(value: Any, *, exact: bool = False) -> bytes:
    return json_bytes(jsonable(value, exact=exact), indent=2)


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """A JSON text with a newline at its end, in UTF-8; what UTF-8 cannot hold is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:  # half of a surrogate pair, from a file of a stranger
        return (json.dumps(value, indent=indent, allow_nan=False) + "\n").encode()


def _restore_float(mapping: dict[str, Any]) -> Any:
    return float(mapping[_FLOAT_TAG]) if mapping.keys() == {_FLOAT_TAG} else mapping


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; ValueError for anything else, also for one nested too deep."""
    try:
        return json.loads(data, object_hook=_restore_float)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except TypeError as error:  # a tagged float that is not a text
        raise ValueError(str(error)) from None


@contextmanager
def reading(path: Path, fix: str, *failures: type[Exception]) -> Iterator[None]:
    """RunError with the file and `fix` if the block fails with an error of these types."""
    try:
        yield
    except failures as error:
        raise RunError(f"{path} cannot be read: {error}. {fix}".rstrip()) from None


def read_bytes(path: Path, fix: str) -> bytes:
    """The content of a file of a run; otherwise RunError with the file and `fix`."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise RunError(f"{path} is missing. {fix}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}. {fix}") from None


def read_json(path: Path, fix: str) -> dict[str, Any]:
    """The mapping in a JSON file; RunError with the file and `fix` if there is none."""
    data = read_bytes(path, fix)
    with reading(path, fix, ValueError):
        value = parse_json(data)
    if not isinstance(value, dict):
        raise RunError(f"{path} contains a {type(value).__name__}, expected a mapping. {fix}")
    return value


def finite(value: Any) -> float | None:
    """A number as a float; None for anything else that a file may hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
