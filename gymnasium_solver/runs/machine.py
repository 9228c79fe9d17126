"""Provenance of a run: versions, git state, machine, process, and who made it.

A run whose config names code of its own (plugins, `module:Env-v0`) is signed with a random key of
the user when it is created, and again at a resume. Only such a run is evaluated or resumed without
asking: another one would import modules that a stranger has chosen. The signature covers the run's
id and the names of the modules. See docs/runs.md.
"""

import hashlib
import hmac
import json
import os
import platform
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from gymnasium_solver.version import __version__

_PACKAGES = ("torch", "numpy", "gymnasium", "envpool")
KEY_BYTES = 32
_MAX_DIFF_BYTES = 10_000_000  # a larger diff is probably data, not code


def versions() -> dict[str, str | None]:
    """Installed versions, read from package metadata so that no heavy package is imported."""
    own = {"python": platform.python_version(), "gymnasium_solver": __version__}
    own |= {"gymnasium_solver_commit": commit} if (commit := package_commit()) else {}
    return own | {name: installed(name) for name in _PACKAGES}


@cache
def package_commit() -> str | None:
    """The commit of this package, if it is used from a checkout or was installed from a repository;
    with a plus sign if files of the checkout were changed."""
    place = Path(__file__).parents[2]
    if (place / ".git").exists():
        commit = _git(place, "rev-parse", "HEAD")
        if commit is None:
            return None
        changed = _git(place, "status", "--porcelain", "--untracked-files=no")
        return commit.decode().strip() + "+" * bool(changed)
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        origin = metadata.distribution("gymnasium-solver").read_text("direct_url.json")
        commit_id = json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")
        return commit_id if isinstance(commit_id, str) else None
    return None


@cache  # packages do not change while a process runs, and reading takes milliseconds
def installed(name: str) -> str | None:
    """The version of an installed distribution."""
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
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "hostname": hostname(),
    }


def process() -> dict[str, Any]:
    """The process that writes a run or an episode, and its machine; a resume replaces it."""
    pid = os.getpid()
    return {"pid": pid, "pid_started": process_start(pid), "machine": machine()}


def git_state(directory: Path) -> tuple[dict[str, Any] | None, bytes]:
    """Commit and dirty state of the repository at `directory` without untracked files, and the diff
    against the commit. (None, b"") outside a repository or without git."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None, b""
    diff = _git(directory, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-color")
    state: dict[str, Any] = {"commit": commit.decode().strip(), "dirty": bool(diff)}
    if diff is None or len(diff) > _MAX_DIFF_BYTES:
        state |= {"dirty": True if diff else None, "diff": "not saved: too large or too slow"}
        diff = b""
    return state, diff


def process_age_s() -> float:
    """Seconds since this process was started."""
    import psutil

    return max(0.0, time.time() - psutil.Process().create_time())


def process_start(pid: int) -> float | None:
    """Start time of a process, which tells it from a later one of the same id; None if unknown.

    On Linux in seconds since boot: there psutil derives the time of day from the clock, which may
    be changed during training."""
    import psutil

    try:
        started = psutil.Process(pid).create_time()
    except psutil.Error:
        return None
    return round(started - psutil.boot_time() if psutil.LINUX else started, 2)


def is_alive(pid: int, started: float | None = None) -> bool:
    """Whether the process is running; with `started`, whether it is still the same process."""
    import psutil

    try:
        is_zombie = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.AccessDenied:  # it is running as another user
        is_zombie = False
    return not is_zombie and started in (None, process_start(pid))


@cache
def cpu_name() -> str:
    """The CPU's name: lscpu knows ARM cores, sysctl Apple's."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    for command in ("lscpu", "sysctl machdep.cpu.brand_string"):
        with suppress(OSError, subprocess.SubprocessError):
            found = subprocess.run(command.split(), capture_output=True, text=True, timeout=10)
            if match := re.search(r"^(?:Model name|machdep\S+):\s*([^-\s].*)", found.stdout, re.M):
                return match[1].strip()
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


# -- which runs were made here, by this user ------------------------------------------------------


def signature(run_id: str, code: Sequence[str]) -> str | None:
    """The signature of a run that names this code; None without code, or without a home folder."""
    key = _user_key() if code else None
    return None if key is None else _signed(key, run_id, code)


def is_made_here(meta: Mapping[str, Any], code: Sequence[str]) -> bool:
    """Whether this user made the run with this content of meta.json, with exactly this code."""
    given, run_id, key = meta.get("signature"), meta.get("id"), _user_key(create=False)
    if key is None or not isinstance(given, str) or not isinstance(run_id, str):
        return False
    expected = _signed(key, run_id, code)
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def user_folder() -> Path:
    """The folder of this user's settings."""
    base = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
    return Path(base or Path.home() / ".config") / "gymnasium-solver"


def _signed(key: bytes, run_id: str, code: Sequence[str]) -> str:
    text = "\0".join((run_id, *sorted(code)))
    return hmac.new(key, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _user_key(create: bool = True) -> bytes | None:
    """The user's key, created at the first use; None if there is no folder to keep it in."""
    try:
        path = user_folder() / "key"
        if create and not path.exists():
            _create_key(path)
        key = path.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return key if len(key) == KEY_BYTES else None


def _create_key(path: Path) -> None:
    """Write the key whole or not at all. Of two processes one wins, and both use its key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".key-{secrets.token_hex(8)}")
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temp, path)
    finally:
        temp.unlink()
