"""Where a training that a client starts goes, and whether there is room for it."""

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import FOLDER, load
from gymnasium_solver.runs import query
from gymnasium_solver.runs.run import is_run

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".mcp-lock"
JOBS = ".mcp-jobs"
"""Folder of the processes that coordinate experiments and searches; `slots` of them are in it."""
LOCK_S = 60.0
_DATED = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")  # of a run that is repeated


class Full(GsolveError):
    """The budget of trainings at once is used up."""


@contextmanager
def a_slot(root: Path, most: int) -> Iterator[None]:
    """Hold the right to start one more training: servers of one folder take turns."""
    with _locked(root):
        _free(root, most)
        yield


@contextmanager
def slots(root: Path, most: int, wanted: int, name: str) -> Iterator[tuple[int, Path]]:
    """The right to keep several trainings going, and the folder of what coordinates them."""
    with _locked(root):
        n = min(wanted, _free(root, most))
        folder = root.absolute() / JOBS / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "slots").write_text(str(n))
        yield n, folder


def _free(root: Path, most: int) -> int:
    """How many more trainings may be started; Full if there is no room."""
    reserved = {}
    for folder in sorted((root / JOBS).glob("*/")):
        if local.is_running(folder):
            reserved[folder.name] = int((folder / "slots").read_text() or 1)
    members = {run for name in reserved for run in _members(root, name)}
    running = [run for run in live(root) if run not in members]
    n = len(running) + sum(reserved.values())
    if n >= most:
        names = ", ".join([*running, *reserved][:5])
        raise Full(
            f"{n} trainings are running, at most {most} at once: {names}. Wait for one or stop it."
        )
    return most - n


def _members(root: Path, name: str) -> list[str]:
    try:
        return [member.run for member in load(root / FOLDER / name).members]
    except RunError:  # a search, whose runs are in a folder of its own
        return []


def live(root: Path) -> list[str]:
    """Ids of the runs in training, and of those about to begin."""
    running = [run.id for run in query.list_runs(root) if run.status in ("created", "running")]
    for folder in root.iterdir():
        if folder.is_dir() and not is_run(folder) and (folder / local.JOB).exists():
            try:
                if local.is_running(folder):
                    running.append(folder.name)
            except RunError:
                continue
    return running


def new_folder(root: Path, name: str, config: str) -> Path:
    """A new folder for a run, named as given or after its config; RunError if the name is taken or
    not possible."""
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}", name):
        raise RunError(f"{name[:60]!r} cannot name a run: expected letters, digits and . _ + = -")
    what = re.sub(r"[^A-Za-z0-9._-]+", "-", _DATED.sub("", config)).strip("-.") or "run"
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = root / (name or f"{what[:80]}-{now}-{secrets.token_hex(2)}")
    if folder.exists():
        raise RunError(f"{folder.name} exists already; choose another name, or resume it")
    return folder.absolute()


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with (root / LOCK).open("ab") as file:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RunError("another server is starting a training; try again") from None
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        yield
