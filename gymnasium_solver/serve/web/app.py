"""The app: routes and checks; and the server that runs it, in the foreground for
`gsolve ui` or in a thread for notebooks.

    with BackgroundServer(Settings(root=Path("runs"))) as server:
        print(server.settings.url)

A module of questions has a table `QUESTIONS`, from method and path to function.
"""

import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.serve.web import (
    curve_pages,
    experiment_pages,
    inspector_pages,
    job_pages,
    list_pages,
    program,
    run_pages,
)
from gymnasium_solver.serve.web.handling import Web, answer, handler, on_error
from gymnasium_solver.serve.web.security import SecurityMiddleware, Settings

TOPICS = (
    list_pages,
    run_pages,
    curve_pages,
    job_pages,
    experiment_pages,
    inspector_pages,
)
PORTS_TRIED = 20


def create_app(settings: Settings) -> Starlette:
    web = Web(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with web.closing:
            yield

    async def page(request: Request) -> Response:
        return program.page(request.url.path, settings.base_path + "/")

    async def no_such_call(request: Request) -> Response:
        return answer({"error": f"there is no {request.url.path}"}, 404)

    asked = [(*place.split(), fn) for topic in TOPICS for place, fn in topic.QUESTIONS.items()]
    # A run of a sweep has slashes in its name, SWEEP/trials/0007/seed0: longer addresses first.
    asked = [(method, path.replace("{run}", "{run:path}"), fn) for method, path, fn in asked]
    asked.sort(key=lambda one: ("{run:path}" in one[1], -one[1].count("/")))
    app = Starlette(
        routes=[
            *(Route(path, handler(fn, web), methods=[method]) for method, path, fn in asked),
            Route("/api/{rest:path}", no_such_call),
            Mount("/static", StaticFiles(directory=program.STATIC)),
            Route("/{page:path}", page),
        ],
        middleware=[
            Middleware(SecurityMiddleware, settings=settings),
            Middleware(GZipMiddleware, minimum_size=1500, compresslevel=1),
        ],
        exception_handlers={GsolveError: on_error, HTTPException: on_error},
        lifespan=lifespan,
    )
    app.state.web = web
    return app


def listen(host: str, port: int, *, any_port: bool) -> socket.socket:
    """A listening socket; the next free port if `any_port`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for candidate in range(port, port + (PORTS_TRIED if any_port and port else 1)):
        # With the protocol named, asyncio switches off Nagle's delay of 40 ms on its connections.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host.strip("[]"), candidate))
            sock.listen(128)
            return sock
        except (OSError, OverflowError) as error:
            sock.close()
            last = error if isinstance(error, OSError) else OSError(str(error))
    raise GsolveError(f"cannot listen on {host}:{port}: {last}. Choose another --host or --port.")


class Server(uvicorn.Server):
    """Ends the streams of open pages first: they would hold up the end, and be cut off loudly."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        assert isinstance(app, Starlette)
        app.state.web.list.is_closed = True
        await super().shutdown(sockets)


def make_server(settings: Settings, sock: socket.socket) -> tuple[Server, Settings]:
    """The server and its settings with the port that it got."""
    settings = replace(settings, port=sock.getsockname()[1])
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=3,
        ws="none",
    )
    return Server(config), settings


class BackgroundServer:
    """A server in a thread of this process, until `close()` or the end of a `with`."""

    def __init__(self, settings: Settings, *, any_port: bool = True) -> None:
        self._socket = listen(settings.host, settings.port, any_port=any_port)
        self.server, self.settings = make_server(settings, self._socket)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + 30
        while not self.server.started and self._thread.is_alive():
            if time.monotonic() > deadline:
                raise GsolveError("the web server did not start within 30 s")
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(timeout=5)

    def __enter__(self) -> "BackgroundServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
