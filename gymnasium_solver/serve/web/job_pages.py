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
from gymnasium_solver.experiments.experiment import FOLDER, slug
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import picked
from gymnasium_solver.runs.resolve import SWEEPS, resolve_checkpoint, run_name
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.questions import NO_FIELDS, Answer, BadRequest, Fields, OneRun, Within
from gymnasium_solver.serve.web.handling import Web

JOBS = ".jobs"
MOST_JOBS = 20
KEPT_JOBS = 100  # jobs whose console is kept; older ones are removed when another one starts
TITLES = {
    "train": "Train", "eval": "Evaluate", "video": "Record", "experiment": "Experiment",
    "sweep": "Sweep", "set": "Change fields of",
}  # fmt: skip
_ID = re.compile(r"(run:)?[A-Za-z0-9][A-Za-z0-9._+=-]{0,140}")
_CHECKPOINT = re.compile(r"@best|@last|[0-9]{1,30}")


def configs(web: Web, q: str = "") -> Answer:
    # The schema of the fields takes as long to import as all the rest of the server.
    from gymnasium_solver.config.find import find_configs

    found = (
        picked(e, "name env_id variant algo_id suite description") for e in find_configs(q or None)
    )
    return {"configs": [{name: printable(text) for name, text in one.items()} for one in found]}


async def check_config(
    web: Web, config: str, fields: Fields = NO_FIELDS, trust: bool = False
) -> Answer:
    """Every field of a config with the values typed so far, or what is wrong with them."""
    trainings.as_flags(fields)
    target = await run_in_threadpool(trainings.config_named, config, web.root)
    return await web.config_helper.ask({"target": target, "fields": fields, "trust": trust})


def start(
    web: Web,
    config: str,
    fields: Fields = NO_FIELDS,
    name: str = "",
    seeds: Annotated[int, Within(1, 100)] = 1,
    search: dict[str, str] | None = None,
    trials: Annotated[int, Within(1, 10_000)] = 20,
    at_once: Annotated[int, Within(1, 64)] = 1,
    trust: bool = False,
    solve: bool = False,
    budget: str = "",
) -> Answer:
    """Start a run; with several `seeds` an experiment; with `search`, fields to ranges ("": the
    field's own), a sweep. `at_once`: trainings of these at the same time. `solve`: measure an
    environment, choose and train within a `budget`, which is a time or env steps."""
    if seeds == 1 and search is None and not solve:
        job = web.begin(lambda: trainings.start(web.root, config, name, fields, trust=trust))
        return {"job": as_json(web, job), "run": job.folder.name}
    kind, place = ("experiment", FOLDER) if search is None else ("sweep", SWEEPS)
    made = slug(trainings.new_name(config, name))
    if (web.root / place / made).exists():
        raise BadRequest(f"the {kind} {made} exists already; choose another name, or resume it")
    target = trainings.config_named(config, web.root)
    words = trainings.many_words(web.root, [target], made, seeds, search, trials)
    if solve:
        words = trainings.solve_words(web.root, target, made, budget)
    words += ["--jobs", str(at_once), *trainings.as_flags(fields)]
    words += trainings.trust_flags(target, trust)
    return {"job": begin_job(web, kind, *words), kind: made}


def begin_job(web: Web, kind: str, *words: str) -> Answer:
    """A gsolve command in a folder of its own. The consoles of the oldest ones go."""
    for name in _newest(web.root)[KEPT_JOBS - 1 :]:
        if not local.is_running(web.root / JOBS / name):
            shutil.rmtree(web.root / JOBS / name, ignore_errors=True)
    folder = web.root / JOBS / f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    return as_json(web, web.begin(lambda: local.start(local.gsolve(*words), folder)))


def stop_run(web: Web, run: OneRun) -> Answer:
    trainings.stop(run)
    return {"stopped": True}


def resume_run(web: Web, run: OneRun, fields: Fields = NO_FIELDS, trust: bool = False) -> Answer:
    return {"job": as_json(web, web.begin(lambda: trainings.resume(run, fields, trust=trust)))}


def _existing(name: str, ref: str, asked: Mapping[str, Any]) -> str:
    """A selector that exists: an error now is better than one in the console of a job."""
    if not _CHECKPOINT.fullmatch(ref):
        raise BadRequest(f"{ref!r} is not a checkpoint; expected @best, @last or env steps")
    run: Run = asked["run"]
    root = asked["desk"].root
    resolve_checkpoint(f"{run_name(run, root)}/{ref}", root, allow_paths=False)
    return ref


Checkpoint = Annotated[str, _existing]


def evaluate(
    web: Web,
    run: OneRun,
    checkpoint: Checkpoint = "@best",
    episodes: Annotated[int, Within(1, 100_000)] = 100,
    trust: bool = False,
) -> Answer:
    return _in_background(web, run, "eval", checkpoint, episodes, trust)


def record(
    web: Web,
    run: OneRun,
    checkpoint: Checkpoint = "@best",
    episodes: Annotated[int, Within(1, 16)] = 1,
    trust: bool = False,
) -> Answer:
    return _in_background(web, run, "video", checkpoint, episodes, trust)


def _in_background(
    web: Web, run: Run, verb: str, checkpoint: str, episodes: int, trust: bool
) -> Answer:
    words = [verb, f"{run_name(run, web.root)}/{checkpoint}", "--episodes", str(episodes)]
    words += ["--runs-dir", str(web.root), *trainings.trust_flags(str(run.config_path), trust)]
    return {"job": begin_job(web, verb, *words)}


def jobs(web: Web) -> Answer:
    """What runs in the background, and the newest of what has ended: evaluations, recordings,
    experiments, sweeps, and the trainings that are under way or were started here."""
    folder, names = web.root / JOBS, _newest(web.root)
    training = [web.root / run.id for run in web.store.runs(5.0) if run.status == "running"]
    own = [path for path in web.started[-MOST_JOBS:] if path.parent == web.root.absolute()]
    places = dict.fromkeys([*(folder / name for name in names[:MOST_JOBS]), *training, *own])
    found = [job for place in places if (job := _job_in(place)) is not None]
    found.sort(key=lambda job: (job.is_running, job.at), reverse=True)
    return {"jobs": [as_json(web, job) for job in found[: 2 * MOST_JOBS]]}


def _job_in(folder: Path) -> local.Job | None:
    try:
        return local.find(folder)
    except RunError:  # damaged
        return None


def _newest(root: Path) -> list[str]:
    """The ids of the jobs that are not trainings, newest first."""
    folder = root / JOBS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(names, key=lambda name: name.partition("-")[2], reverse=True)  # by date


def one_job(web: Web, job: str) -> Answer:
    return {"job": as_json(web, find_job(web.root, job))}


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


def as_json(web: Web, job: local.Job) -> Answer:
    words = [word for word in job.argv if word not in ("-m", "gymnasium_solver")][1:]
    name, is_running = job.folder.name, job.is_running
    is_own = job.folder.parent.name == JOBS
    told: Answer = {
        "id": name if is_own else f"run:{name}",
        "kind": name.partition("-")[0] if is_own else "train",
        "run": name if not is_own and is_run(job.folder) else None,
        "command": printable(f"gsolve {shlex.join(words)}"),
        "started_at": job.at,
        "is_running": is_running,
        "exit_code": job.exit_code,
    }
    told |= _target(words, told["kind"]) if is_own else {"about": name}
    told["title"] = printable(f"{TITLES.get(told['kind'], told['kind'])} {told['about']}")
    return told if is_running else told | _outcome(web, job, told)


def _outcome(web: Web, job: local.Job, told: Answer) -> Answer:
    """What a job that has ended came to."""
    found: Answer = {}
    if told["id"].startswith("run:") and (run := web.store.find(job.folder.name)) is not None:
        found |= {"status": run.status, "solved": run.solved, "test": run.test_mean}
    if told["kind"] == "eval":
        found["scores"] = _scores(web, told["run"], job.at)
    if job.exit_code and (last := local.tail(job.folder, 1)):
        found["why"] = printable(last[0])[:300]
    return found


def _target(words: list[str], kind: str) -> Answer:
    """What a job is about, from its command line."""
    first = printable("".join(words[1:2]))
    if kind == "set":
        return {"run": first, "about": first}
    if kind in ("eval", "video"):
        run, _, checkpoint = first.rpartition("/")
        return {"run": run, "about": f"{run} {checkpoint}"}
    flags = ("--resume", "--experiment", "--name")
    found = next((words[words.index(flag) + 1] for flag in flags if flag in words[:-1]), "")
    return {kind: printable(found), "about": printable(found)}


def _scores(web: Web, run: str, since: str) -> list[Answer]:
    """What an evaluation has measured."""
    try:
        found = query.get_later_evaluations(web.run(run))
    except RunError:  # archived since
        return []
    new = [event for event in found if str(event.get("at")) >= since]
    return [picked(event, "greedy mean stderr episodes") for event in new[:2]]


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
