"""`GET api/session`: what the page may do here. `POST api/login`: the token becomes a cookie."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver import __version__
from gymnasium_solver.serve.web.respond import answer, in_thread


def routes() -> list[BaseRoute]:
    return [
        Route("/api/session", in_thread(session)),
        Route("/api/login", login, methods=["POST"]),
    ]


def session(request: Request) -> dict[str, Any]:
    settings = request.app.state.web.settings
    return {
        "version": __version__,
        "root": str(settings.root),
        "read_only": settings.read_only,
        # A page of another origin cannot read this answer, and another Host is refused.
        "token": settings.token,
    }


async def login(request: Request) -> Response:
    """The middleware has checked the token."""
    settings = request.app.state.web.settings
    response = answer({"ok": True})
    response.set_cookie(
        settings.cookie, settings.token, httponly=True, samesite="strict",
        path=settings.base_path + "/",
    )  # fmt: skip
    return response
