"""The lock of a run folder: one process writes it at a time.

The operating system holds the lock (flock) on the file `.lock` and releases it when the process
ends, also by `kill -9`: a lock is never stale. Where the file system or the platform has no such
locks, the process recorded in meta.json is all there is to check.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import cannot_write

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_held: set[int] = set()


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder; RunError, with the process that has it, if it is taken."""
    if fcntl is None:
        yield
        return
    try:
        handle = os.open(run / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write("the lock", run, error) from error
    try:
        _take(handle, run)
        _held.add(handle)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def _take(handle: int, run: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
        process = f"process {pid}" if pid.isdecimal() else "another process"
        raise RunError(
            f"{run.name} is still running in {process}. Stop it before resuming, or start a new "
            "run with `gsolve train`."
        ) from None
    except OSError:  # a file system without locks
        return
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except OSError as error:
        raise cannot_write("the lock", run, error) from error


def _close_in_child() -> None:
    """A forked worker would keep the lock after its parent was killed."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
