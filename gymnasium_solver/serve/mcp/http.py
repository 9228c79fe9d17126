"""The server over HTTP: Host, Origin and bearer token are checked before anything else."""

import hmac
from collections.abc import Sequence

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gymnasium_solver.serve.mcp.server import SolverServer
from gymnasium_solver.serve.mcp.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATH = "/mcp"


def is_loopback(host: str) -> bool:
    return host in LOOPBACK


def http_app(
    server: SolverServer, settings: Settings, host: str, port: int, names: Sequence[str] = ()
) -> ASGIApp:
    """`names`: host names under which clients reach the server, besides `host`."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=host,
        transport_security=security(host, port, names),
    )
    needs_token = settings.token is not None and not is_loopback(host)
    return BearerToken(app, settings.token, needs_token)


def security(host: str, port: int, names: Sequence[str]) -> TransportSecuritySettings:
    """Only these names reach the server: a web page that resolves its own name to this machine
    does not. `names` may have a port of their own."""
    own = ["127.0.0.1", "localhost", "[::1]"] if is_loopback(host) else []
    if not is_loopback(host) and host not in ("0.0.0.0", "::"):
        own.append(f"[{host}]" if ":" in host else host)
    # Behind a proxy the Host of a client has no port.
    hosts = [*(f"{name}:{port}" for name in (*own, *names)), *names]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{name}" for name in hosts for scheme in ("http", "https")],
    )


class BearerToken:
    """Refuses a wrong token always, and a missing one if `is_required`."""

    def __init__(self, app: ASGIApp, token: str | None, is_required: bool) -> None:
        self.app, self.token, self.is_required = app, token, is_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            response = PlainTextResponse(
                "a valid bearer token is required", 401, {"WWW-Authenticate": "Bearer"}
            )
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            return not self.is_required
        if self.token is None or len(given) != 1:
            return False
        return hmac.compare_digest(given[0], f"Bearer {self.token}".encode())
