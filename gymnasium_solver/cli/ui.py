"""`gsolve ui`: runs, curves, comparisons and new trainings in the browser."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.errors import MissingError

if TYPE_CHECKING:
    from gymnasium_solver.serve.web.security import Settings


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "ui",
        "Show the runs in the browser: tables, curves, comparisons; start, stop and resume\n"
        "trainings. Listens on this machine only, unless --host says otherwise.",
        "examples:\n  gsolve ui --open\n  gsolve ui --runs-dir /data/runs --port 8080 --read-only\n"
        "  ssh -L 7070:127.0.0.1:7070 HOST gsolve ui      # then open http://127.0.0.1:7070\n"
        "  gsolve ui --host 0.0.0.0                       # other machines, with a token",
    )
    parser.add_runs_dir()
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, metavar="N", help="port (default: 7070, or the next free one)"
    )
    parser.add_argument(
        "--base-path", default="", metavar="PATH", help="prefix of all URLs, behind a proxy"
    )
    parser.add_argument("--read-only", action="store_true", help="refuse every change")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this name in the Host header, such as that of a proxy; repeatable",
    )
    parser.add_argument(
        "--require-token",
        action="store_true",
        help="ask for the token before reading too, where other people use this machine",
    )
    args = parser.read(argv)
    if args.port is not None and not 0 <= args.port <= 65535:
        raise UsageError(f"--port {args.port}: expected 0 to 65535")
    require_web()

    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.serve.web.security import Settings, clean_base_path

    settings = Settings(
        root=runs_root(args.runs_dir).absolute(),
        host=args.host,
        base_path=clean_base_path(args.base_path),
        read_only=args.read_only,
        allowed_hosts=tuple(args.allowed_host),
        require_token=args.require_token,
    )
    return serve(settings, args.port, opens=args.open)


def require_web() -> None:
    """MissingError without the packages of the web app."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingError(
            "the web app is not installed: pip install 'gymnasium-solver[ui]'"
        ) from None


def serve(settings: "Settings", port: int | None = None, *, page: str = "", opens: bool) -> int:
    """Run the server until Ctrl-C. `page`: the address below it to show first."""
    from gymnasium_solver.serve.web.app import listen, make_server
    from gymnasium_solver.serve.web.security import DEFAULT_PORT

    sock = listen(settings.host, DEFAULT_PORT if port is None else port, any_port=port is None)
    server, settings = make_server(settings, sock)
    base, hash_sign, token = settings.url.partition("#")
    url = f"{base}{page}{hash_sign}{token}"
    print(f"runs in {settings.root}\n{url}\nCtrl-C ends it", flush=True)
    if opens:
        import webbrowser

        webbrowser.open(url)
    with suppress(KeyboardInterrupt):  # the usual end
        server.run(sockets=[sock])
    return 0
