"""`GET api/stream`: server-sent events. `cursor` follows the list of runs, `watch` the metrics and
events of runs, `log` the console of one run, `job` that of a job, each from its own cursor."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from gymnasium_solver.serve.web import jobs
from gymnasium_solver.serve.web.live import Wanted
from gymnasium_solver.serve.web.respond import run_of, runs_of, web_of


def routes() -> list[BaseRoute]:
    return [Route("/api/stream", stream)]


async def stream(request: Request) -> Response:
    wanted = await run_in_threadpool(wanted_by, request)
    return StreamingResponse(
        web_of(request).live.follow(wanted),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def wanted_by(request: Request) -> Wanted:
    query = request.query_params
    wanted = Wanted(cursor=query.get("cursor"))
    if query.get("watch"):
        for run in runs_of(request, "watch"):
            wanted.files[run.metrics_path] = ("metrics", {"run": run.id})
            wanted.files[run.events_path] = ("events", {"run": run.id})
            wanted.files[run.meta_path] = ("meta", {"run": run.id})
    if query.get("log"):
        run = run_of(request, query["log"])
        wanted.texts[run.log_path] = ("log", {"run": run.id}, query.get("log_cursor"))
    if query.get("job"):
        job = jobs.find(web_of(request).settings.root, query["job"])
        wanted.texts[job.log_path] = ("job", {"job": query["job"]}, query.get("job_cursor"))
    return wanted
