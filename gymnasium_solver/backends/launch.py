"""The first moment of a job: `python -m gymnasium_solver.backends.launch FOLDER CPUS -- ARGV...`.

It takes the lock of the folder, refuses if a job is running in it, writes `job.json` with its own
process id and start time, and becomes ARGV, which keeps both. So two starters, or one that is
killed at any moment, never leave two jobs in a folder, nor one that cannot be found.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.backends.local import JOB, LOCK, Job, find, kill_orphans
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import dump_json, read_json, write_atomic
from gymnasium_solver.runs.run import utc_now

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ALREADY_RUNNING = 73
LANES = "lanes.json"  # of a job that trains several runs (experiments/stack.py)


def main(words: Sequence[str]) -> int:
    folder, cpus, argv = Path(words[0]), int(words[1]), list(words[3:])
    if (refusal := claim(folder, cpus, argv)) is not None:
        return refusal
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127


def claim(folder: Path, cpus: int, argv: list[str]) -> int | None:
    """Record this process as the job of a folder; an exit code if there is one already."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        before = find(folder)
    except RunError:  # damaged, which says nothing about the run
        before = None
    if before is not None and before.is_running and before.pid != os.getpid():
        print(f"a job is running in {folder}: process {before.pid}", file=sys.stderr)
        return ALREADY_RUNNING
    if before is not None:
        kill_orphans(before)
    job = record(folder, argv, cpus or None, before)
    write_atomic(folder / JOB, dump_json({k: v for k, v in job.to_dict().items() if k != "folder"}))
    os.close(handle)
    return None


def record(folder: Path, argv: list[str], cpus: int | None, before: Job | None) -> Job:
    """What is to be known about the job that this process becomes."""
    newest = newest_checkpoint(folder)
    same = before is not None and before.from_env_steps == newest
    return Job(
        folder=folder,
        argv=argv,
        pid=os.getpid(),
        pid_started=machine.process_start(os.getpid()),
        hostname=machine.hostname(),
        at=utc_now(),
        starts=1 if before is None else before.starts + 1,
        from_env_steps=newest,
        stuck=before.stuck + 1 if before is not None and same else 0,
        cpus=cpus,
    )


def newest_checkpoint(folder: Path) -> int | None:
    """Env steps of the newest complete checkpoint in a run folder; of all runs of a stack."""
    if (folder / LANES).is_file():
        lanes = read_json(folder / LANES, "Delete the folder; the runs are intact.")["lanes"]
        return sum(newest_checkpoint(Path(lane["run"])) or 0 for lane in lanes)
    checkpoints = folder / "checkpoints"
    if not checkpoints.is_dir():
        return None
    done = [p for p in checkpoints.iterdir() if p.name.isdecimal() and (p / "done").exists()]
    return max((int(path.name) for path in done), default=None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
