"""Provenance of a run: versions, git state, machine, process.

psutil is imported inside the functions that need it, so that reading a finished run does not
require it.
"""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from gymnasium_solver.version import __version__

_PACKAGES = ("torch", "numpy", "gymnasium", "envpool")
_MAX_DIFF_BYTES = 10_000_000  # a larger diff is probably data, not code


def versions() -> dict[str, str | None]:
    """Installed versions, read from package metadata so that no heavy package is imported."""
    own = {"python": platform.python_version(), "gymnasium_solver": __version__}
    return own | {name: _installed(name) for name in _PACKAGES}


@cache  # packages do not change while a process runs, and reading takes milliseconds
def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def hostname() -> str:
    return platform.node()


def machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "hostname": hostname(),
    }


def git_state(directory: Path) -> tuple[dict[str, Any] | None, bytes]:
    """Commit and dirty state of the repository at `directory`, and the diff against the commit.

    (None, b"") outside a repository or without git. Untracked files are ignored.
    """
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None, b""
    diff = _git(directory, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-color")
    state: dict[str, Any] = {"commit": commit.decode().strip(), "dirty": bool(diff)}
    if diff is None or len(diff) > _MAX_DIFF_BYTES:
        state |= {"dirty": True if diff else None, "diff": "not saved: too large or too slow"}
        diff = b""
    return state, diff


def process_start(pid: int) -> float | None:
    """Start time of a process, to distinguish it from a later one with the same id; None if
    unknown.

    On Linux in seconds since boot: there psutil derives the time of day from the clock, which may
    be changed during training. Elsewhere the time of day, as stored by the kernel.
    """
    import psutil

    try:
        started = psutil.Process(pid).create_time()
    except psutil.Error:
        return None
    return round(started - psutil.boot_time() if psutil.LINUX else started, 2)


def is_alive(pid: int, started: float | None = None) -> bool:
    """Whether the process is running; with `started`, whether it is still the same process."""
    import psutil

    if not psutil.pid_exists(pid):
        return False
    try:
        is_zombie = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it has ended in the meantime
        return False
    except psutil.AccessDenied:  # it is running as another user
        is_zombie = False
    return not is_zombie and started in (None, process_start(pid))


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(directory: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            timeout=5,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
