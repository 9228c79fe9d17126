"""What a run records of where it ran: versions, git state, machine, and whether a process lives."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from gymnasium_solver import __version__

_PACKAGES = ("torch", "numpy", "gymnasium", "envpool")
_MAX_DIFF_BYTES = 10_000_000  # a larger diff is data in the repository, not code


def versions() -> dict[str, str | None]:
    """Installed versions, read from package metadata so that nothing heavy is imported."""
    from importlib import metadata

    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "gymnasium_solver": __version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


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
    """Commit and dirtiness of the repository around `directory`, and the diff against the commit.

    (None, b"") outside a repository or without git. Untracked files do not count.
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


def process_start(pid: int) -> str | None:
    """When a process started, in the kernel's own clock; None where that cannot be told."""
    fields = _proc_stat(pid)
    return fields[19] if fields else None


def is_alive(pid: int, started: str | None = None) -> bool:
    """Whether the process lives; with `started`, whether it is still the same one (ids recur)."""
    if sys.platform == "win32":
        return _is_alive_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and belongs to someone else
        pass
    fields = _proc_stat(pid)
    if not fields:
        return True
    is_zombie = fields[0] == "Z"
    return not is_zombie and started in (None, fields[19])


def _proc_stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the name: state first, start time at index 19."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()


def _is_alive_windows(pid: int) -> bool:
    """os.kill would end the process on Windows; a handle that opens and has not ended is alive."""
    if sys.platform != "win32":
        return False
    import ctypes

    kernel, synchronize, timed_out = ctypes.windll.kernel32, 0x00100000, 0x102
    handle = kernel.OpenProcess(synchronize, False, pid)
    if not handle:
        return False
    alive = kernel.WaitForSingleObject(handle, 0) == timed_out
    kernel.CloseHandle(handle)
    return bool(alive)


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
