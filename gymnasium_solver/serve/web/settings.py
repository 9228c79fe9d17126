"""What `gsolve ui` was started with."""

import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from gymnasium_solver.errors import GsolveError

DEFAULT_PORT = 7070


@dataclass(frozen=True)
class Settings:
    root: Path
    """Folder of the runs."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    base_path: str = ""
    """Prefix of all URLs behind a proxy, such as "/solver"; "" for none."""
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names in the Host header that are accepted besides those of the address itself."""
    require_token: bool = False
    """Ask for the token before reading, too. Always so if other machines can connect."""
    frame_ancestors: str = "'self'"
    """Pages that may show this one in a frame, as in a Content-Security-Policy."""
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
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def clean_base_path(text: str) -> str:
    """ "/solver" of "solver/" and the like; "" of "/"."""
    path = "/" + text.strip("/")
    allowed = all(c.isalnum() or c in "-._~/" for c in path)
    if not allowed or "//" in path or "/../" in f"{path}/":
        raise GsolveError(f"--base-path {text!r}: expected a path such as /solver")
    return "" if path == "/" else path
