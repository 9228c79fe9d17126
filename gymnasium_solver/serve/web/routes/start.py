"""Starting a training: the configs, a form for one of them, its check while typing, the start.

`GET api/configs?q`, `POST api/config`, `POST api/start`.
"""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.printable import printable
from gymnasium_solver.serve.web import jobs
from gymnasium_solver.serve.web.respond import answer, body_of, field, in_thread, web_of, with_body


def routes() -> list[BaseRoute]:
    return [
        Route("/api/configs", in_thread(configs)),
        Route("/api/config", check, methods=["POST"]),
        Route("/api/start", with_body(start), methods=["POST"]),
    ]


def configs(request: Request) -> dict[str, Any]:
    # The schema of the fields takes as long to import as all the rest of the server.
    from gymnasium_solver.config.find import find_configs

    found = find_configs(request.query_params.get("q") or None)
    names = ("name", "env_id", "variant", "algo_id", "suite", "description")
    return {"configs": [{n: printable(getattr(e, n)) for n in names} for e in found]}


async def check(request: Request) -> Response:
    """Every field of a config with the values typed so far, or what is wrong with them."""
    web, body = web_of(request), await body_of(request)
    fields = field(body, "fields", dict, {})
    jobs.flags(fields)
    target = await run_in_threadpool(
        jobs.config_target, web.settings.root, field(body, "config", str)
    )
    reply = await web.config_worker.ask({"target": target, "fields": fields})
    return answer({name: value for name, value in reply.items() if name != "id"})


def start(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    root = web_of(request).settings.root
    name = body.get("name") or None
    job = jobs.train(
        root,
        field(body, "config", str),
        field(body, "fields", dict, {}),
        field(body, "name", str) if name else None,
    )
    return {"job": jobs.to_json(root, job), "run": job.folder.name}
