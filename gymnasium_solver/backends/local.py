"""Detached processes on this machine, each in a folder that is known before the start.

    job = start(gsolve("train", "CartPole-v1:ppo", "--run-dir", str(folder)), folder)
    stop(folder)                     # SIGTERM: a training saves and exits with 75

The process has its own session, so it outlives the one that started it. Its identity is in
`job.json`: the process id with its start time, so that a reused id is never mistaken for it. Output
goes to `job.log`. Both are in the folder itself; `gsolve train --run-dir` accepts such a folder.

The process takes the lock of the folder, refuses if a job is running in it, records itself and then
becomes the argv. So two starters, or one that is killed at any moment, never leave two jobs in a
folder, nor one that cannot be found. This module is its first moment:

    python -m gymnasium_solver.backends.local claim FOLDER CPUS ARGV...

Two other commands become another program in the same way, and keep the process id. `tied ARGV...`
dies with its parent (Linux), so that a training does not outlive the Ray worker or the node that
was lost, while another one continues the same run. `task FOLDER INDEX` becomes one of the argvs in
FOLDER/tasks.json, a job array of Slurm.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

from gymnasium_solver.config.cpus import CPUS
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.paths import open_regular
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import dump_json, read_json, take_lock, write_atomic
from gymnasium_solver.runs.run import utc_now

JOB, LOCK, LOG, TASKS = "job.json", "job.lock", "job.log", "tasks.json"
LANES = "lanes.json"  # of a job that trains several runs (experiments/experiment.py)
START_S = 60.0  # on a busy machine Python itself may take seconds to start
ALREADY_RUNNING = 73
PR_SET_PDEATHSIG = 1


class BackendError(GsolveError):
    """A job cannot be started or stopped."""


class Process(Protocol):
    """The part of `subprocess.Popen` that is used."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forks(Protocol):
    """What starts a process faster than Python does (nursery.py)."""

    def start(
        self, argv: Sequence[str], folder: Path, log: Path, env: Mapping[str, str], cpus: int | None
    ) -> Process | None: ...


_children: dict[int, Process] = {}


@dataclass(frozen=True)
class Job:
    """A process that was started in a folder."""

    folder: Path
    argv: list[str]
    pid: int
    pid_started: float | None
    hostname: str
    at: str  # when it was started, in UTC
    starts: int = 1  # how often a job was started in this folder
    from_env_steps: int | None = None  # the newest checkpoint at the start; None without one
    stuck: int = 0  # how many starts before this one began from the same checkpoint
    cpus: int | None = None
    gpus: str | None = None
    """The GPUs that it was given, as in CUDA_VISIBLE_DEVICES; None: all of the machine."""
    ended_with: int | None = field(default=None, compare=False)
    """The exit code, if the process has recorded it itself."""

    @property
    def is_running(self) -> bool:
        here = self.hostname == machine.hostname()
        return here and machine.is_alive(self.pid, self.pid_started)

    @property
    def exit_code(self) -> int | None:
        """The exit code, if this process started the job and it has ended; negative: a signal."""
        child = _children.get(self.pid)
        return self.ended_with if child is None else child.poll()

    @property
    def log_path(self) -> Path:
        return self.folder / LOG

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], folder: Path) -> Self:
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        try:
            return cls(**known | {"folder": folder})
        except TypeError:
            raise RunError(f"{folder / JOB} lacks fields. Delete it; the run is intact.") from None


LAUNCH = [sys.executable, "-m", "gymnasium_solver.backends.local"]


def gsolve(*words: str) -> list[str]:
    """The argv of a gsolve command with this Python."""
    return [sys.executable, "-m", "gymnasium_solver", *words]


def start(
    argv: Sequence[str],
    folder: Path,
    *,
    cpus: int | None = None,
    env: Mapping[str, str] | None = None,
    nursery: Forks | None = None,
) -> Job:
    """Start a process in the background and return once it has recorded itself.

    `folder` is created if needed. The working folder stays the caller's. `cpus`: how many CPUs the
    threads of a training may use. `nursery`: forks the process, if it can. BackendError if a job is
    running in the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        output = (folder / LOG).open("ab")
    except OSError as error:
        raise BackendError(f"cannot start a job in {folder}: {error.strerror}") from error
    variables = {**os.environ, **(env or {})}
    if cpus is not None:
        variables[CPUS] = str(cpus)
    process: Process | None = None
    if nursery is not None:
        process = nursery.start(argv, folder, folder / LOG, variables, cpus)
    with output:
        process = process or subprocess.Popen(
            [*LAUNCH, "claim", str(folder), str(cpus or 0), *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=variables,
        )
    _children[process.pid] = process
    try:
        return _recorded(process, folder)
    except BaseException:  # Ctrl-C now would leave a job that nobody knows of yet
        process.terminate()
        raise


def _recorded(process: Process, folder: Path) -> Job:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None
        if (job := find(folder)) is not None and job.pid == process.pid:
            return job
        if has_ended:
            last = (tail(folder, 1) or ["it wrote nothing"])[-1]
            raise BackendError(f"no job was started in {folder}: {last}")
        time.sleep(0.01)
    process.kill()
    raise BackendError(f"no job was started in {folder} within {START_S:g} s")


def claim(folder: Path, cpus: int, argv: list[str]) -> int | None:
    """Record this process as the job of a folder; an exit code if there is one already."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    take_lock(handle)
    try:
        before = find(folder)
    except RunError:  # damaged, which says nothing about the run
        before = None
    if before is not None and before.is_running and before.pid != os.getpid():
        print(f"a job is running in {folder}: process {before.pid}", file=sys.stderr)
        return ALREADY_RUNNING
    newest, starts, stuck = newest_checkpoint(folder), 1, 0
    if before is not None:
        kill_orphans(before)
        starts = before.starts + 1
        stuck = before.stuck + 1 if before.from_env_steps == newest else 0
    pid = os.getpid()
    job = Job(
        folder, argv, pid, machine.process_start(pid), machine.hostname(), utc_now(), starts,
        newest, stuck, cpus or None, os.environ.get(SHARED),
    )  # fmt: skip
    record(folder, job)
    os.close(handle)
    return None


def record(folder: Path, job: Job, **changes: Any) -> None:
    """Write `job.json`."""
    content = {name: value for name, value in (vars(job) | changes).items() if name != "folder"}
    write_atomic(folder / JOB, dump_json(content))


def newest_checkpoint(folder: Path) -> int | None:
    """Env steps of the newest complete checkpoint in a run folder; of all runs of a stack."""
    if (folder / LANES).is_file():
        lanes = read_json(folder / LANES, "Delete the folder; the runs are intact.")["lanes"]
        return sum(newest_checkpoint(Path(lane["run"])) or 0 for lane in lanes)
    done = (path.parent.name for path in (folder / "checkpoints").glob("*/done"))
    return max((int(name) for name in done if name.isdecimal()), default=None)


def find(folder: Path) -> Job | None:
    """The newest job of a folder, running or not."""
    path = folder / JOB
    if not path.is_file():
        return None
    return Job.from_dict(read_json(path, "Delete it; the run is intact."), folder)


def is_running(folder: Path) -> bool:
    job = find(folder)
    return job is not None and job.is_running


def stop(folder: Path, *, kill_after_s: float | None = None) -> bool:
    """Ask the job of a folder to save and end; False if none is running.

    SIGTERM goes to the training process only, which needs its worker processes for saving. With
    `kill_after_s` the whole session is killed if it is still running after that time."""
    job = find(folder)
    if job is None or not job.is_running:
        return False
    with suppress(ProcessLookupError):
        os.kill(job.pid, signal.SIGTERM)
    if kill_after_s is not None and not wait(folder, kill_after_s):
        kill(folder)
    return True


def kill(folder: Path) -> None:
    """Kill the job of a folder with all of its processes, at once. A run can still be resumed."""
    if (job := find(folder)) is None:
        return
    if not job.is_running:
        return kill_orphans(job)
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def kill_orphans(job: Job) -> None:
    """Kill what a dead job has left running in its session, such as environment processes.

    While a group exists, its number is not given to a new process. So if no process has the number
    and the group exists, the group is that of the job."""
    if job.hostname == machine.hostname() and not _exists(job.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, signal.SIGKILL)


def n_running() -> int:
    """How many jobs that this process started are running. Those that have ended are reaped."""
    return sum(child.poll() is None for child in list(_children.values()))


def reap(job: Job) -> None:
    """Wait for a job in a thread, so that it does not stay behind as a zombie when it ends."""
    child = _children.get(job.pid)
    if isinstance(child, subprocess.Popen):
        threading.Thread(target=child.wait, name=f"reap-{job.pid}", daemon=True).start()


def _exists(pid: int) -> bool:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:  # reaped: the number is free
        return False
    return machine.is_alive(pid)


def wait(folder: Path, timeout_s: float) -> bool:
    """Wait until no job is running in the folder; False after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while is_running(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def tail(folder: Path, lines: int = 20, log: str = LOG) -> list[str]:
    """The last lines of a job's output."""
    try:
        with open_regular(folder / log) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 200 * lines - 4096))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = "GSOLVE_GPUS"  # the same, if the pool has set it


@cache
def _listed_gpus() -> tuple[str, ...]:
    """The GPUs that NVIDIA's driver shows to this process."""
    if shutil.which("nvidia-smi") is None:
        return ()
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(re.findall(r"^GPU (\d+):", found.stdout, re.MULTILINE))


def gpus_here() -> list[str]:
    """Names of the GPUs that a run here may use, as in CUDA_VISIBLE_DEVICES."""
    if (given := os.environ.get(VISIBLE)) is None:
        return list(_listed_gpus())
    return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]


def _names_gpu(argv: Sequence[str]) -> bool:
    """Whether a command names one of the machine's GPUs itself, such as cuda:1."""
    for word in argv:
        text = word
        if word.endswith((".yaml", ".yml")):
            with suppress(OSError):
                text = Path(word).read_text(encoding="utf-8", errors="replace")
        if re.search(r"^(device: *)?['\"]?cuda:\d", text, re.MULTILINE):
            return True
    return False


class LocalBackend:
    """Processes on this machine for the pool (experiments/pool.py)."""

    def __init__(self, nursery: Forks | None = None, gpus: float | None = None) -> None:
        """`gpus`: how many GPUs a run gets, such as 0.25; None: one, if there are several, and as
        many runs on each as there are jobs."""
        self._nursery, self._gpus = nursery, gpus
        self._folders: set[Path] = set()
        cards = len(gpus_here()) if gpus else 0
        if gpus and gpus > cards:
            raise BackendError(f"a run is to get {gpus:g} GPUs, but there are {cards} here")
        self.most_jobs = int(cards / gpus + 1e-9) if gpus else None
        """How many runs there is room for; None: any number."""

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object:
        env = self._shared(argv)
        self._folders.add(folder)
        return start(argv, folder, cpus=cpus, env=env, nursery=self._nursery)

    def _shared(self, argv: Sequence[str]) -> dict[str, str]:
        """The environment variables that give a run the GPUs with the fewest runs on them."""
        if self._gpus == 0:
            return {VISIBLE: "", SHARED: ""}
        cards = gpus_here()
        n = max(1, round(self._gpus or 1))
        if (self._gpus is None and len(cards) < 2) or not cards or _names_gpu(argv):
            return {}
        jobs = [job for folder in self._folders if (job := find(folder)) and job.is_running]
        taken = [card for job in jobs for card in (job.gpus or "").split(",")]
        chosen = ",".join(sorted(cards, key=taken.count)[:n])  # stable: the first of equal ones
        return {VISIBLE: chosen, SHARED: chosen}

    def is_running(self, folder: Path) -> bool:
        self._folders.add(folder)
        return is_running(folder)

    def exit_code(self, folder: Path) -> int | None:
        return job.exit_code if (job := find(folder)) else None

    def stuck(self, folder: Path) -> int:
        job = find(folder)
        return job.stuck + 1 if job and job.from_env_steps == newest_checkpoint(folder) else 0

    stop, tail = staticmethod(stop), staticmethod(tail)


class CountedStarts:
    """A base of backends that keep no record of how often they started a run."""

    def __init__(self) -> None:
        self._counts: dict[Path, tuple[int | None, int]] = {}

    def note_start(self, folder: Path) -> None:
        """A job is being started in this folder, which is created if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        newest, (before, count) = newest_checkpoint(folder), self._counts.get(folder, (None, 0))
        self._counts[folder] = (newest, count + 1 if newest == before else 1)
        # `gsolve train --if-exists resume` clears a run without a checkpoint in place if it is a
        # job's; this mark says so on every machine.
        (folder / LOCK).touch()

    def stuck(self, folder: Path) -> int:
        """How many starts in a row began from the newest checkpoint."""
        before, count = self._counts.get(folder, (None, 0))
        return count if newest_checkpoint(folder) == before else 0


# -- the first moment of a process -----------------------------------------------------------


def write_tasks(folder: Path, argvs: Sequence[Sequence[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TASKS).write_text(json.dumps([list(argv) for argv in argvs], indent=1) + "\n")


def _tasks(folder: Path) -> Any:
    try:
        return json.loads((folder / TASKS).read_text())
    except FileNotFoundError:
        sys.exit(
            f"{folder} is not seen on {socket.gethostname()}: the runs must be on a disk that all "
            "nodes see (--runs-dir, or $GSOLVE_RUNS)"
        )


def with_this_python(argv: list[str]) -> list[str]:
    """The argv with the Python of this machine: another one may have it in another place."""
    is_ours = argv[1:3] == ["-m", "gymnasium_solver"]
    return [sys.executable, *argv[1:]] if is_ours else argv


def main(words: Sequence[str]) -> int:
    how, *rest = words
    argv = rest
    if how == "claim":
        argv = rest[2:]
        if (refusal := claim(Path(rest[0]), int(rest[1]), argv)) is not None:
            return refusal
    elif how == "task":
        argv = with_this_python(_tasks(Path(rest[0]))[int(rest[1])])
    elif not die_with_parent():
        return 1
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127


def die_with_parent() -> bool:
    """Be killed when the parent ends; False if it has ended before."""
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
