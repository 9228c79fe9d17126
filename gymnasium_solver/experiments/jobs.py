"""Jobs in the background: what runs where, its output, and how to end it.

A job is a run or an experiment that was started by `--detach`, by a pool, by the web app or by an
agent, or an experiment that was handed to a cluster.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gymnasium_solver.backends import local, slurm
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import FILE, FOLDER, STACKS, load
from gymnasium_solver.runs.resolve import meant
from gymnasium_solver.runs.run import Run, is_run, live_status


@dataclass(frozen=True)
class JobInfo:
    name: str
    kind: str  # run or experiment
    backend: str
    status: str  # running, queued, ended, or the status of the run that has ended
    id: str  # process id, or the id of the cluster's job
    at: str
    path: str

    @property
    def is_active(self) -> bool:
        return self.status in ("running", "queued")


def list_jobs(root: Path) -> list[JobInfo]:
    """All jobs, the newest first."""
    found = [
        job
        for folder in (*root.glob("[!@.]*/"), *(root / FOLDER).glob("[!@.]*/"))
        if (job := job_in(folder)) is not None
    ]
    return sorted(found, key=lambda job: job.at, reverse=True)


def job_in(folder: Path) -> JobInfo | None:
    """The job of a folder, if it has one."""
    kind = "experiment" if (folder / FILE).is_file() else "run"
    if (job_id := slurm.job_in(folder)) is not None:
        at, status = load(folder).created_at if kind == "experiment" else "", "unknown"
        with suppress(GsolveError):
            status = "queued" if slurm.is_active(job_id) else "ended"
            if status == "queued" and "RUNNING" in slurm.states(job_id).values():
                status = "running"
        return JobInfo(folder.name, kind, "slurm", status, job_id, at, str(folder))
    try:
        job = local.find(folder)
    except RunError:
        return None
    if job is None:
        return None
    status = "running" if job.is_running else "ended"
    if status == "ended" and is_run(folder):
        status = live_status(Run(folder).meta())
    return JobInfo(folder.name, kind, "local", status, str(job.pid), job.at, str(folder))


def find_job(ref: str, root: Path) -> JobInfo:
    """The job that a name, or a unique part of one, means; of several the only active one."""
    jobs = {job.name: job for job in reversed(list_jobs(root))}
    for job in jobs.values():
        if ref == job.id:
            return job
    active = [name for name, job in jobs.items() if job.is_active and ref.lower() in name.lower()]
    names = active if len(active) == 1 and ref not in jobs else list(jobs)
    return jobs[meant(ref, names, "job", root)]


def logs(job: JobInfo, lines: int = 50) -> list[str]:
    """The last lines of a job's output."""
    folder = Path(job.path)
    if job.backend != "slurm":
        return local.tail(folder, lines)
    logs = sorted((folder / slurm.FOLDER).glob("*.log"))
    return [f"[{p.stem}] {line}" for p in logs for line in local.tail(p.parent, lines, p.name)]


def cancel(job: JobInfo) -> bool:
    """Ask a job to save and end; False if it is not running. It can be resumed later."""
    folder = Path(job.path)
    if job.backend == "slurm":
        if not job.is_active:
            return False
        slurm.cancel(folder / "slurm", job.id)
        return True
    if local.stop(folder):  # a coordinator stops its runs
        return True
    if job.kind != "experiment":
        return False
    stopped = [local.stop(path) for path in (*load(folder).folders(), *(folder / STACKS).glob("*"))]
    return any(stopped)
