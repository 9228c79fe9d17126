"""Questions as routes: what the requests share, arguments of a request, answers as JSON.

    Route("/api/series", handler(series, web))     # def series(web: Web, runs: SomeRuns, ...)

A GET takes its arguments from the path and the query, a POST from the path and a JSON object.
"""

import inspect
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError, TrustError, told_as
from gymnasium_solver.experiments.experiment import Experiment
from gymnasium_solver.serve.questions import (
    MOST_CONFIGS,
    Answer,
    BadRequest,
    Desk,
    Kept,
    Question,
    arguments,
    json_text,
    parameters,
    parsed,
)
from gymnasium_solver.serve.web.helper import Helper, HelperError
from gymnasium_solver.serve.web.security import Settings
from gymnasium_solver.serve.web.stream import RunList

LARGEST_BODY = 1_000_000
MOST_SWEEPS = 64


class TooManyJobs(BadRequest):
    """No further job may be started before another one ends."""


class Web(Desk):
    """What the requests share."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.root)
        self.settings = settings
        self.list = RunList(self.store)
        self.identities: dict[str, tuple[dict[str, Any], str]] = {}
        """The config of a run, and what it is without the seed, by its id."""
        self.experiments: Kept[Experiment] = Kept(MOST_CONFIGS)
        self.sweeps: Kept[Any] = Kept(MOST_SWEEPS)
        self.sweep_facts: Kept[Answer] = Kept(MOST_SWEEPS)
        self.started: list[Path] = []  # the folders of the trainings that this server has started
        self.sparklines: Kept[list[list[float]]] = Kept(MOST_CONFIGS)
        self.config_helper = Helper("gymnasium_solver.serve.web.config_worker", answer_s=60.0)
        self.player = Helper("gymnasium_solver.media.inspect_worker", str(settings.root))
        self._starting = threading.Lock()
        self.closing = AsyncExitStack()
        for helper in (self.config_helper, self.player):
            self.closing.push_async_callback(helper.close)

    def begin(self, start: Callable[[], local.Job]) -> local.Job:
        """Start a job, unless too many are running."""
        with self._starting:
            if (n := local.n_running()) >= self.settings.max_jobs:
                raise TooManyJobs(
                    f"{n} jobs of this page are running, the most that may (--max-jobs). Stop one, "
                    "or wait for one to end."
                )
            job = start()
        local.reap(job)
        self.started.append(job.folder)
        return job


def handler(question: Question, web: Web) -> Callable[[Request], Awaitable[Response]]:
    """A handler from a question. One that is not async runs in a thread: it reads files."""
    known = [one.word for one in parameters(question)]

    async def handle(request: Request) -> Response:
        if request.method == "POST":
            given = await body_of(request)
            if unknown := ", ".join(sorted(set(given) - set(known))):
                raise BadRequest(f"unknown: {unknown[:100]}; expected {', '.join(known) or 'none'}")
        else:
            given = parsed(question, request.query_params)
        asked = await run_in_threadpool(arguments, question, web, given | request.path_params)
        if inspect.iscoroutinefunction(question):
            result = await question(web, **asked)
        else:
            result = await run_in_threadpool(question, web, **asked)
        return result if isinstance(result, Response) else answer(result)

    return handle


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was posted."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_BODY:
            raise BadRequest(f"the request is longer than {LARGEST_BODY:,} bytes")
    with told_as(BadRequest, "the request is not JSON", ValueError, RecursionError):
        value = json.loads(data or b"{}")
    if not isinstance(value, dict):
        raise BadRequest("the request is not a JSON object")
    return value


def answer(value: Any, status: int = 200) -> Response:
    body = json_text(value).encode(errors="replace")
    return Response(body, status, media_type="application/json")


def attachment(content: str, name: str, kind: str, **headers: str) -> Response:
    """A file for the browser to save."""
    safe = name.replace('"', "")
    disposition = {"content-disposition": f'attachment; filename="{safe}"'}
    body = content.encode(errors="replace")
    return Response(body, media_type=f"{kind}; charset=utf-8", headers=disposition | headers)


async def on_error(request: Request, error: Exception) -> Response:
    """An error that the command line would print as one line."""
    if isinstance(error, HTTPException):
        return answer({"error": error.detail}, error.status_code)
    if isinstance(error, TrustError):
        return answer({"error": str(error), "needs_trust": True}, 409)
    if isinstance(error, TooManyJobs):
        return answer({"error": str(error)}, 429)
    status = 404 if isinstance(error, RunError) else 503 if isinstance(error, HelperError) else 400
    return answer({"error": str(error)}, status)
