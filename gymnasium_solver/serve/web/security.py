"""What `gsolve ui` was started with, checks before every request, headers of every response.

- The Host header must name this server: a foreign page that lets its own name point to this address
  (DNS rebinding) is refused with 421.
- Whatever changes something (any method but GET and HEAD) needs the token in the header
  `X-Gsolve-Token`, and must not come from another origin: 403.
- If other machines can connect, or with --require-token, reading needs the token too, as a cookie
  that `POST /api/login` sets: 401.
- `--read-only` refuses every change: 403.
- Pages load nothing from elsewhere and run no inline code (Content-Security-Policy).
"""

import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.errors import GsolveError

DEFAULT_PORT = 7070
TOKEN_HEADER = "x-gsolve-token"
LOGIN = "/api/login"
# What a browser may load before it has the token: the program of the page, no data.
PUBLIC = ("/static/", LOGIN)
READ_ONLY_MAY_POST = (LOGIN,)
# [::1] or a name or number, each with or without a port.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+))(?::\d{1,5})?")


@dataclass(frozen=True)
class Settings:
    root: Path  # folder of the runs
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    base_path: str = ""  # prefix of all URLs behind a proxy, such as "/solver"; "" for none
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names in the Host header that are accepted besides those of the address itself."""
    require_token: bool = False
    """Ask for the token before reading, too. Always so if other machines can connect."""
    frame_ancestors: str = "'self'"
    """Pages that may show this one in a frame, as in a Content-Security-Policy."""
    max_jobs: int = field(default_factory=lambda: max(4, 2 * cpu_count()))
    """Trainings and other jobs that may run at the same time, of those that the page started."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def reading_needs_token(self) -> bool:
        return self.require_token or not self.is_loopback

    @property
    def cookie(self) -> str:
        """Cookies are shared by all ports of a host, so the name has the port."""
        return f"gsolve-{self.port}"

    @property
    def url(self) -> str:
        """The address to open; the token is in the fragment, which is never sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        host = "127.0.0.1" if host in ("0.0.0.0", "[::]") else host
        fragment = f"#token={self.token}" if self.reading_needs_token else ""
        return f"http://{host}:{self.port}{self.base_path}/{fragment}"


def is_loopback(host: str) -> bool:
    address = _address(host.strip("[]"))
    return host.lower() == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def clean_base_path(text: str) -> str:
    """ "/solver" of "solver/" and the like; "" of "/"."""
    path = "/" + text.strip("/")
    allowed = all(c.isalnum() or c in "-._~/" for c in path)
    if not allowed or "//" in path or "/../" in f"{path}/":
        raise GsolveError(f"--base-path {text!r}: expected a path such as /solver")
    return "" if path == "/" else path


class SecurityMiddleware:
    """Refuses requests as described above; strips the base path from the others."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.headers = fixed_headers(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no websockets

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        path, base = scope["path"], self.settings.base_path
        if base and (path == base or path.startswith(base + "/")):  # a proxy may strip it, or not
            path = path[len(base) :] or "/"
        scope = {**scope, "path": path, "raw_path": path.encode()}
        refused = self._refuse(scope)
        if refused is None:
            await self.app(scope, receive, send_with_headers)
        else:
            status, reason = refused
            await JSONResponse({"error": reason}, status)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> tuple[int, str] | None:
        """The status and reason of a refusal; None to go on."""
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not host_is_allowed(host, self.settings):
            name = host_name(host)
            fix = f"; start with --allowed-host {name}" if name else ""
            return 421, f"the host {host[:100]!r} is not served here{fix}"
        if scope["method"] in ("GET", "HEAD"):
            return self._refuse_reading(headers, path)
        if self.settings.read_only and path not in READ_ONLY_MAY_POST:
            return 403, "this server was started with --read-only"
        if reason := foreign_origin(headers, host):
            return 403, reason
        if not self._has_token(headers.get(TOKEN_HEADER, "")):
            return 403, "the token is missing or wrong; reload the page"
        return None

    def _refuse_reading(self, headers: Headers, path: str) -> tuple[int, str] | None:
        is_data = path.startswith("/api/") and not path.startswith(PUBLIC)
        if not (is_data and self.settings.reading_needs_token):
            return None
        cookies = cookie_parser(headers.get("cookie", ""))
        given = cookies.get(self.settings.cookie) or headers.get(TOKEN_HEADER, "")
        return None if self._has_token(given) else (401, "the token is needed")

    def _has_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.settings.token.encode())


def host_name(host: str) -> str:
    """The Host header without its port; "" if it is neither a name nor an address."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]) if found else ""


def host_is_allowed(host: str, settings: Settings) -> bool:
    name = host_name(host).lower().rstrip(".")
    if not name:
        return False
    allowed = {"localhost", settings.host.lower(), *(h.lower() for h in settings.allowed_hosts)}
    if name in allowed or is_loopback(name):
        return True
    if settings.is_loopback:
        return False
    # A page with a number for a host cannot be rebound to another one.
    return _address(name) is not None or name == socket.gethostname().lower()


def foreign_origin(headers: Headers, host: str) -> str | None:
    """Why a changing request is not from a page of this server; None if it is, or if it is from a
    program that sends neither header."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return "the request comes from another site"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return "the request comes from another origin"
    return None


def fixed_headers(settings: Settings) -> dict[str, str]:
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "media-src": "'self' blob:",
        "connect-src": "'self'",
        "base-uri": "'self'",
        "form-action": "'none'",
        "frame-ancestors": settings.frame_ancestors,
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
    }
