"""What the page that starts a training asks, and the buttons of a run: stop, resume, evaluate,
record; the jobs that they start, and their consoles.

A training and a resume run in the folder of the run, other jobs in `<runs>/.jobs/<id>/`. The id of
a job is the name of its folder, with "run:" in front for that of a run.
"""

import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from starlette.concurrency import run_in_threadpool

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.questions import NO_FIELDS, Answer, BadRequest, Fields, OneRun, Whole
from gymnasium_solver.serve.web.handling import Web

JOBS = ".jobs"
MOST_JOBS = 20
KEPT_JOBS = 100
"""Jobs whose console is kept; older ones are removed when another one starts."""
_ID = re.compile(r"(run:)?[A-Za-z0-9][A-Za-z0-9._+=-]{0,140}")
_CHECKPOINT = re.compile(r"@best|@last|[0-9]{1,30}")


def configs(web: Web, q: str = "") -> Answer:
    # The schema of the fields takes as long to import as all the rest of the server.
    from gymnasium_solver.config.find import find_configs

    names = ("name", "env_id", "variant", "algo_id", "suite", "description")
    found = find_configs(q or None)
    return {"configs": [{n: printable(getattr(e, n)) for n in names} for e in found]}


async def check_config(
    web: Web, config: str, fields: Fields = NO_FIELDS, trust: bool = False
) -> Answer:
    """Every field of a config with the values typed so far, or what is wrong with them."""
    trainings.as_flags(fields)
    target = await run_in_threadpool(trainings.config_named, config, web.root)
    return await web.config_helper.ask({"target": target, "fields": fields, "trust": trust})


def start(
    web: Web, config: str, fields: Fields = NO_FIELDS, name: str = "", trust: bool = False
) -> Answer:
    job = web.begin(lambda: trainings.start(web.root, config, name, fields, trust=trust))
    return {"job": as_json(job), "run": job.folder.name}


def stop_run(web: Web, run: OneRun) -> Answer:
    trainings.stop(run)
    return {"stopped": True}


def resume_run(web: Web, run: OneRun, fields: Fields = NO_FIELDS, trust: bool = False) -> Answer:
    return {"job": as_json(web.begin(lambda: trainings.resume(run, fields, trust=trust)))}


def _existing(name: str, ref: str, asked: Mapping[str, Any]) -> str:
    """A selector that exists: an error now is better than one in the console of a job."""
    if not _CHECKPOINT.fullmatch(ref):
        raise BadRequest(f"{ref!r} is not a checkpoint; expected @best, @last or env steps")
    run: Run = asked["run"]
    resolve_checkpoint(f"{run.id}/{ref}", run.path.parent, allow_paths=False)
    return ref


Checkpoint = Annotated[str, _existing]


def evaluate(
    web: Web,
    run: OneRun,
    checkpoint: Checkpoint = "@best",
    episodes: Annotated[int, Whole(1, 100_000)] = 100,
    trust: bool = False,
) -> Answer:
    return _in_background(web, run, "eval", checkpoint, episodes, trust)


def record(
    web: Web,
    run: OneRun,
    checkpoint: Checkpoint = "@best",
    episodes: Annotated[int, Whole(1, 16)] = 1,
    trust: bool = False,
) -> Answer:
    return _in_background(web, run, "video", checkpoint, episodes, trust)


def _in_background(
    web: Web, run: Run, verb: str, checkpoint: str, episodes: int, trust: bool
) -> Answer:
    root = run.path.parent
    flags = trainings.trust_flags(str(run.config_path), trust)
    folder = root / JOBS / f"{verb}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    words = [verb, f"{run.id}/{checkpoint}", "--episodes", str(episodes), "--runs-dir", str(root)]
    words += flags
    for name in _newest(root)[KEPT_JOBS - 1 :]:
        if not local.is_running(root / JOBS / name):
            shutil.rmtree(root / JOBS / name, ignore_errors=True)
    return {"job": as_json(web.begin(lambda: local.start(local.gsolve(*words), folder)))}


def jobs(web: Web) -> Answer:
    """The newest jobs that are not trainings."""
    found = (local.find(web.root / JOBS / name) for name in _newest(web.root)[:MOST_JOBS])
    return {"jobs": [as_json(job) for job in found if job is not None]}


def _newest(root: Path) -> list[str]:
    """The ids of the jobs that are not trainings, newest first."""
    folder = root / JOBS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(names, key=lambda name: name.partition("-")[2], reverse=True)  # by date


def one_job(web: Web, job: str) -> Answer:
    return {"job": as_json(find_job(web.root, job))}


def stop_job(web: Web, job: str) -> Answer:
    return {"stopped": local.stop(find_job(web.root, job).folder)}


def find_job(root: Path, job_id: str) -> local.Job:
    """The job of this id; RunError if there is none."""
    if _ID.fullmatch(job_id):
        name = job_id.removeprefix("run:")
        job = local.find(root / name if job_id.startswith("run:") else root / JOBS / name)
        if job is not None:
            return job
    raise RunError(f"there is no job {job_id!r}")


def as_json(job: local.Job) -> Answer:
    words = [word for word in job.argv if word not in ("-m", "gymnasium_solver")][1:]
    name = job.folder.name
    return {
        "id": name if job.folder.parent.name == JOBS else f"run:{name}",
        "run": name if is_run(job.folder) else None,
        "command": printable(f"gsolve {shlex.join(words)}"),
        "title": printable(f"gsolve {' '.join(words[:2])}"),
        "started_at": job.at,
        "is_running": job.is_running,
        "exit_code": job.exit_code,
    }


QUESTIONS = {
    "GET /api/configs": configs,
    "POST /api/config": check_config,
    "POST /api/start": start,
    "POST /api/runs/{run}/stop": stop_run,
    "POST /api/runs/{run}/resume": resume_run,
    "POST /api/runs/{run}/evaluate": evaluate,
    "POST /api/runs/{run}/record": record,
    "GET /api/jobs": jobs,
    "GET /api/jobs/{job}": one_job,
    "POST /api/jobs/{job}/stop": stop_job,
}
