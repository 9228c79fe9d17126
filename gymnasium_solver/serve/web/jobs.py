"""Work that a page starts on this machine: trainings, resumes, evaluations, recordings.

A training and a resume run in the folder of the run, other jobs in `<runs>/.jobs/<id>/`. They are
processes of their own (`backends/local.py`) and outlive the server. The id of a job is the name of
its folder, with "run:" in front for that of a run.
"""

import re
import secrets
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.serve.web.respond import BadRequest

JOBS = ".jobs"
_ID = re.compile(r"(run:)?[A-Za-z0-9][A-Za-z0-9._+=-]{0,140}")
_FIELD = re.compile(r"[a-z_][a-z0-9_]*(\.[A-Za-z0-9_]+)*")
_TARGET = re.compile(r"[A-Za-z0-9][\w-]*([./][\w-]+)*(:[A-Za-z_]\w*)?")
_FILES = (".yaml", ".yml", ".json")


def train(root: Path, target: str, fields: dict[str, Any], name: str | None) -> local.Job:
    """Start a training. The folder of the run is known at once; the run appears in it soon."""
    folder = root / (new_name(target) if name is None else checked_name(name))
    if folder.exists():
        raise BadRequest(f"{folder.name} exists already; choose another name")
    words = ["train", config_target(root, target), "--run-dir", str(folder), *flags(fields)]
    return local.start(local.gsolve(*words, "--no-keys"), folder)


def resume(run: Run, fields: dict[str, Any]) -> local.Job:
    root = str(run.path.parent)
    words = ["train", "--resume", run.id, "--runs-dir", root, *flags(fields), "--no-keys"]
    return local.start(local.gsolve(*words), run.path)


def in_background(run: Run, verb: str, ref: str, *flags: str) -> local.Job:
    """A verb about a run that does not write metrics, such as eval and video."""
    root = run.path.parent
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = root / JOBS / f"{verb}-{now}-{secrets.token_hex(2)}"
    words = [verb, f"{run.id}/{ref}", *flags, "--runs-dir", str(root)]
    return local.start(local.gsolve(*words), folder)


def find(root: Path, job_id: str) -> local.Job:
    """The job of this id; RunError if there is none."""
    if _ID.fullmatch(job_id):
        name = job_id.removeprefix("run:")
        folder = root / name if job_id.startswith("run:") else root / JOBS / name
        job = local.find(folder)
        if job is not None:
            return job
    raise RunError(f"there is no job {job_id!r}")


def job_id(root: Path, job: local.Job) -> str:
    return job.folder.name if job.folder.parent.name == JOBS else f"run:{job.folder.name}"


def to_json(root: Path, job: local.Job) -> dict[str, Any]:
    words = [word for word in job.argv if word not in ("-m", "gymnasium_solver")][1:]
    return {
        "id": job_id(root, job),
        "run": job.folder.name if is_run(job.folder) else None,
        "command": printable(f"gsolve {shlex.join(words)}"),
        "title": printable(f"gsolve {' '.join(words[:2])}"),
        "started_at": job.at,
        "is_running": job.is_running,
        "exit_code": job.exit_code,
    }


def recent(root: Path, most: int = 20) -> list[local.Job]:
    """The newest jobs that are not trainings."""
    folder = root / JOBS
    names = (
        sorted((p.name for p in folder.iterdir()), key=_date, reverse=True)
        if folder.is_dir()
        else []
    )
    found = (local.find(folder / name) for name in names[:most])
    return [job for job in found if job is not None]


def _date(name: str) -> str:
    return name.partition("-")[2]


def flags(fields: dict[str, Any]) -> list[str]:
    """Fields as typed into the form, as flags: a value means what it means in a YAML file."""
    words = []
    for name, text in fields.items():
        if not _FIELD.fullmatch(name) or not isinstance(text, str):
            raise BadRequest(f"{name!r} is not a field with a text")
        words.append(f"--set={name}={text}")
    return words


def config_target(root: Path, target: str) -> str:
    """A config's name, an environment's id, or "run:ID" for the config of a run. Never a path."""
    if target.startswith("run:"):
        name = target.removeprefix("run:")
        if not _ID.fullmatch(name) or not is_run(root / name):
            raise RunError(f"there is no run {name!r}")
        return str(root / name / "config.yaml")
    if not _TARGET.fullmatch(target) or target.lower().endswith(_FILES):
        raise BadRequest(f"{target!r} is not the name of a config, such as CartPole-v1:ppo")
    return target


def new_name(target: str) -> str:
    """The name that training itself would give, from config, time and four digits."""
    base = target.removeprefix("run:").replace(":", "-")
    base = re.sub(r"-\d{8}-\d{6}-[0-9a-f]{4}$", "", base)
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip("-.")
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{base}-{now}-{secrets.token_hex(2)}"


def checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}", name):
        raise BadRequest(
            f"{name!r} cannot name a run: expected up to 128 letters, digits and . _ + = -, "
            "beginning with a letter or digit"
        )
    return name
