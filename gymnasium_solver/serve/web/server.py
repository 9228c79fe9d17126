"""Starts the web server: in the foreground for `gsolve ui`, in a thread for notebooks."""

import socket
import threading
import time
from dataclasses import replace

import uvicorn
from starlette.applications import Starlette

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.serve.web.app import create_app
from gymnasium_solver.serve.web.settings import Settings

PORTS_TRIED = 20


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
        app.state.web.live.close()
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
