"""Jobs: what runs, its console, and the buttons of a run: stop, resume, evaluate, record."""

import os
import re
import signal
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.remove import refuse_running
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import is_alive_here
from gymnasium_solver.serve.web import jobs
from gymnasium_solver.serve.web.respond import (
    BadRequest,
    field,
    in_thread,
    run_of,
    web_of,
    with_body,
)

ENDING_S = 20.0
_CHECKPOINT = re.compile(r"@best|@last|[0-9]{1,30}")


def routes() -> list[BaseRoute]:
    return [
        Route("/api/jobs", in_thread(list_jobs)),
        Route("/api/jobs/{job}", in_thread(one_job)),
        Route("/api/jobs/{job}/stop", with_body(stop_job), methods=["POST"]),
        Route("/api/runs/{run}/stop", with_body(stop_run), methods=["POST"]),
        Route("/api/runs/{run}/resume", with_body(resume_run), methods=["POST"]),
        Route("/api/runs/{run}/evaluate", with_body(evaluate), methods=["POST"]),
        Route("/api/runs/{run}/record", with_body(record), methods=["POST"]),
    ]


def list_jobs(request: Request) -> dict[str, Any]:
    root = web_of(request).settings.root
    return {"jobs": [jobs.to_json(root, job) for job in jobs.recent(root)]}


def one_job(request: Request) -> dict[str, Any]:
    root = web_of(request).settings.root
    return {"job": jobs.to_json(root, jobs.find(root, request.path_params["job"]))}


def stop_job(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    job = jobs.find(web_of(request).settings.root, request.path_params["job"])
    return {"stopped": local.stop(job.folder)}


def stop_run(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """SIGTERM: the training saves a checkpoint and ends. Also for one started in a terminal."""
    run = run_of(request)
    if local.stop(run.path):
        return {"stopped": True}
    meta = run.meta()
    if not is_alive_here(meta):
        raise RunError(f"{run.id} is not running on this machine")
    with suppress(ProcessLookupError):
        os.kill(meta["pid"], signal.SIGTERM)
    return {"stopped": True}


def resume_run(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    run = run_of(request)
    refuse_running([run])
    if not local.wait(run.path, ENDING_S):  # it has saved, but its process has not ended yet
        raise RunError(f"{run.id} is still ending; try again in a moment")
    job = jobs.resume(run, field(body, "fields", dict, {}))
    return {"job": jobs.to_json(run.path.parent, job)}


def evaluate(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    run, ref = run_of(request), _checkpoint(request, body)
    episodes = str(_count(body, "episodes", 100, 100_000))
    job = jobs.in_background(run, "eval", ref, "--episodes", episodes)
    return {"job": jobs.to_json(run.path.parent, job)}


def record(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    run, ref = run_of(request), _checkpoint(request, body)
    episodes = str(_count(body, "episodes", 1, 16))
    job = jobs.in_background(run, "video", ref, "--episodes", episodes)
    return {"job": jobs.to_json(run.path.parent, job)}


def _checkpoint(request: Request, body: dict[str, Any]) -> str:
    """A selector that exists: an error now is better than one in the console of a job."""
    ref: str = field(body, "checkpoint", str, "@best")
    if not _CHECKPOINT.fullmatch(ref):
        raise BadRequest(f"{ref!r} is not a checkpoint; expected @best, @last or env steps")
    run = run_of(request)
    resolve_checkpoint(f"{run.id}/{ref}", run.path.parent, allow_paths=False)
    return ref


def _count(body: dict[str, Any], name: str, default: int, most: int) -> int:
    value: int = field(body, name, int, default)
    if not 1 <= value <= most:
        raise BadRequest(f"{name!r} is {value}, expected 1 to {most:,}")
    return value
