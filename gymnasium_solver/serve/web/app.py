"""The app: routes, checks, the page shell, and what is shared by the requests.

    app = create_app(Settings(root=Path("runs")))

A topic of the API is a module in `routes/` with a function `routes()`; `routes/__init__.py` lists
them. `request.app.state.web` is the `Web` object.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs.catalogue import Catalogue
from gymnasium_solver.serve.web.live import Live
from gymnasium_solver.serve.web.respond import answer, on_error
from gymnasium_solver.serve.web.routes import TOPICS
from gymnasium_solver.serve.web.security import SecurityMiddleware
from gymnasium_solver.serve.web.settings import Settings
from gymnasium_solver.serve.web.tables import Tables
from gymnasium_solver.serve.web.workers import LineWorker

STATIC = Path(__file__).parent / "static"


class Web:
    """What the requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalogue = Catalogue(settings.root)
        self.tables = Tables()
        self.live = Live(self.catalogue)
        self.config_worker = LineWorker("gymnasium_solver.serve.web.config_worker")
        self.whole_list: tuple[str, bytes] | None = None
        """The list of all runs as JSON, and its cursor."""
        self.configs: dict[Any, dict[str, Any]] = {}
        """Configs of runs by id and stamp of the file."""
        self.comparisons: dict[Any, dict[str, Any]] = {}
        """Results of comparisons by what they were computed from."""
        self.closing = AsyncExitStack()
        """Push a callback to run when the server stops, such as ending a worker."""
        self.closing.push_async_callback(self.config_worker.close)


def create_app(settings: Settings) -> Starlette:
    web = Web(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with web.closing:
            yield

    api = [route for topic in TOPICS for route in topic.routes()]
    app = Starlette(
        routes=[
            *api,
            Route("/api/{rest:path}", _no_such_call),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
            Route("/{page:path}", shell),
        ],
        middleware=[
            Middleware(SecurityMiddleware, settings=settings),
            Middleware(GZipMiddleware, minimum_size=1500, compresslevel=1),
        ],
        exception_handlers={GsolveError: on_error, HTTPException: _on_http_error},
        lifespan=lifespan,
    )
    app.state.web = web
    return app


async def shell(request: Request) -> Response:
    """The page of every address: the program in it shows what the address names."""
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    base = request.app.state.web.settings.base_path + "/"
    return HTMLResponse(text.replace("{{base}}", escape(base)))


async def _no_such_call(request: Request) -> Response:
    return answer({"error": f"there is no {request.url.path}"}, 404)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer({"error": error.detail}, error.status_code)
