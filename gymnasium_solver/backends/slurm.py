"""Slurm: one job array per experiment, safe against preemption; one job per trial of a sweep.

A task that Slurm preempts or that reaches its time limit gets SIGTERM 30 seconds before (`B:` sends
it to the script, which passes it on), saves, exits with 75, and is put into the queue again. The
folder of the runs must be on a disk that all nodes see.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gymnasium_solver.backends.local import LAUNCH, BackendError, CountedStarts, tail, write_tasks
from gymnasium_solver.backends.resources import Resources

FOLDER = "slurm"  # in the folder of an experiment or a run
SCRIPT = "job.sbatch"
TEMPLATE = Path(__file__).with_name("slurm_job.txt")
RECORD = "backend.json"
SETUP = "GSOLVE_SLURM_SETUP"  # shell commands that each job runs first
CANCELLED = "cancelled"  # a task that finds this file is not put into the queue again
MAX_REQUEUES = 50
ASK_EVERY_S = 2.0  # squeue is not to be asked at every poll
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESIZING")
_RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED")


def write_script(
    folder: Path,
    argvs: Sequence[Sequence[str]],
    resources: Resources,
    *,
    name: str,
    jobs: int | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Path:
    """Write the tasks and the sbatch script of a job array; returns the script. `options`: further
    lines of #SBATCH, such as --partition=gpu. What $GSOLVE_SLURM_SETUP says, such as `module load
    cuda`, is done first in each task; if it fails, the task does."""
    limit = f"%{jobs}" if jobs is not None and jobs < len(argvs) else ""
    lines = [
        f"--job-name={re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:60]}",
        f"--array=0-{len(argvs) - 1}{limit}",
        "--requeue",
        "--signal=B:TERM@30",
        "--open-mode=append",
        f"--output={folder / '%a.log'}",
        f"--cpus-per-task={resources.cpus}",
        f"--mem={round(1000 * resources.memory_gb)}M",
        f"--time={resources.time_text}",
        *([f"--gres=gpu:{resources.gpus}"] if resources.gpus else []),
        *options,
    ]
    exports = {"GSOLVE_CPUS": str(resources.cpus), **(env or {})}
    setup = os.environ.get(SETUP)
    text = TEMPLATE.read_text(encoding="utf-8").format(
        directives="\n".join(f"#SBATCH {line}" for line in lines),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        folder=shlex.quote(os.getcwd()),
        setup=f"{{\n{setup}\n}} || exit 1" if setup else "",
        task=shlex.join([*LAUNCH, "task", str(folder)]),
        most=MAX_REQUEUES,
        cancelled=shlex.quote(str(folder / CANCELLED)),
    )
    write_tasks(folder, argvs)
    path = folder / SCRIPT
    path.write_text(text)
    return path


def sbatch_options(text: str | None) -> list[str]:
    """The options in the text of --sbatch, with or without their dashes."""
    return [f"--{word.lstrip('-')}" for word in shlex.split(text or "")]


def submit(script: Path) -> str:
    """Hand a script to Slurm; returns the id of the job array."""
    (script.parent / CANCELLED).unlink(missing_ok=True)
    out = _slurm("sbatch", "--parsable", str(script))
    job_id = out.strip().partition(";")[0]
    (script.parent / RECORD).write_text(json.dumps({"backend": "slurm", "id": job_id}) + "\n")
    return job_id


def states(job_id: str) -> dict[int, str]:
    """The state of each task that Slurm still knows; a task that has ended soon disappears."""
    try:
        out = _slurm("squeue", "-h", "-r", "-t", "all", "-j", job_id, "-o", "%K %T")
    except BackendError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    rows = [line.split() for line in out.splitlines()]
    return {int(row[0]): row[1] for row in rows if len(row) == 2 and row[0].isdecimal()}


def is_active(job_id: str) -> bool:
    """Whether a task of the job waits or runs."""
    return any(state in (*_WAITING, *_RUNNING) for state in states(job_id).values())


def job_in(folder: Path) -> str | None:
    """The id of the job that was submitted for a folder."""
    try:
        return str(json.loads((folder / FOLDER / RECORD).read_text())["id"])
    except (OSError, ValueError):
        return None


def cancel(folder: Path, job_id: str) -> None:
    """Take a job array out of the queue. Running tasks get SIGTERM, save and end."""
    (folder / CANCELLED).touch()
    _slurm("scancel", "--state=PENDING", job_id)
    _slurm("scancel", "--signal=TERM", "--batch", job_id)


def _slurm(*words: str) -> str:
    if shutil.which(words[0]) is None:
        raise BackendError(
            f"{words[0]} is not on the PATH: run this on a login node of a Slurm cluster, or use "
            "--backend local"
        )
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode:
        text = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise BackendError(f"{words[0]}: {text.splitlines()[-1]}")
    return done.stdout


class SlurmBackend(CountedStarts):
    """Runs that are not all known at the start, such as the trials of a sweep.

    Each run is a job array of one task, which Slurm puts into the queue again when it is preempted.
    The id of the job is in the folder of the run, so that a coordinator that was killed finds its
    jobs again. Exit codes are not known: what became of a run is in its folder."""

    def __init__(self, resources: Resources, options: Sequence[str] = ()) -> None:
        super().__init__()
        self.resources, self.options = resources, list(options)
        self._asked: dict[str, tuple[float, bool]] = {}  # job: when, and whether it was active

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object:
        self.note_start(folder)
        place = folder.absolute() / FOLDER
        script = write_script(
            place, [list(argv)], self.resources, name=folder.name, options=self.options
        )
        return submit(script)

    def is_running(self, folder: Path) -> bool:
        if (job_id := job_in(folder)) is None:
            return False
        asked_s, active = self._asked.get(job_id, (float("-inf"), False))
        if time.monotonic() - asked_s >= ASK_EVERY_S:
            active = is_active(job_id)
            self._asked[job_id] = (time.monotonic(), active)
        return active

    def exit_code(self, folder: Path) -> int | None:
        return None

    def stop(self, folder: Path) -> object:
        if (job_id := job_in(folder)) is not None:
            cancel(folder.absolute() / FOLDER, job_id)
        return None

    def tail(self, folder: Path, lines: int = 20) -> list[str]:
        return tail(folder / FOLDER, lines, "0.log")
