"""`gsolve mcp`: the MCP server, for agents that drive trainings."""

import argparse
import os
import re
import secrets
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.serve.mcp.allowed import Settings

TOKEN = "GSOLVE_MCP_TOKEN"
UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir).absolute()
    if args.log:
        return _print_log(root, args.json)
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise UsageError(
            "the MCP server needs the package mcp: pip install 'gymnasium-solver[mcp]'"
        ) from None
    from gymnasium_solver.serve.mcp.allowed import Settings
    from gymnasium_solver.serve.mcp.server import is_loopback

    is_open = args.http and not is_loopback(args.host)
    token = _token() if args.http and (args.allow_write or is_open) else None
    settings = Settings(
        root=root,
        is_read_only=args.read_only or (args.http and not args.allow_write),
        max_trainings=_count("--max-trainings", args.max_trainings),
        max_env_steps=_steps(args.max_env_steps),
        max_wall_s=_seconds(args.max_wall_time),
        token=token,
        transport="http" if args.http else "stdio",
        allow_publish=args.allow_publish,
    )
    return _serve_http(settings, args) if args.http else _serve_stdio(settings)


def _parser() -> Parser:
    parser = Parser(
        "mcp",
        "Serve the Model Context Protocol, so that agents can train, watch, debug and compare.\n"
        "Without --http it talks over stdin and stdout; a client starts it.",
        "examples:\n  gsolve mcp\n  gsolve mcp --read-only\n"
        "  gsolve mcp --max-trainings 2 --max-env-steps 1e6 --max-wall-time 2h\n"
        "  gsolve mcp --http --port 8765\n  gsolve mcp --http --allow-write\n  gsolve mcp --log\n\n"
        f"With --http nothing can be changed unless --allow-write is given; changes then need the\n"
        f"bearer token of ${TOKEN}, or the one that is printed at the start.",
    )
    parser.add_argument("--http", action="store_true", help="serve over HTTP instead of stdio")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8765, help="port (default: 8765; 0: any free)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="accept this Host name"
    )
    parser.add_argument("--read-only", action="store_true", help="nothing can be changed")
    parser.add_argument(
        "--allow-write", action="store_true", help="over HTTP: allow changes with the token"
    )
    parser.add_argument(
        "--allow-publish", action="store_true", help="runs may be published on the Hub"
    )
    parser.add_argument(
        "--max-trainings", default="2", metavar="N", help="trainings at once (default: 2)"
    )
    parser.add_argument("--max-env-steps", metavar="N", help="most env steps of one training")
    parser.add_argument(
        "--max-wall-time", metavar="TIME", help="save and stop a training after 90s, 30m, 2h, 1d"
    )
    parser.add_argument("--log", action="store_true", help="print what was changed over MCP")
    parser.add_json()
    parser.add_runs_dir()
    return parser


def _serve_stdio(settings: "Settings") -> int:
    from gymnasium_solver.serve.mcp.server import build_server

    build_server(settings).run("stdio")
    return 0


def _serve_http(settings: "Settings", args: argparse.Namespace) -> int:
    import socket

    import uvicorn

    from gymnasium_solver.serve.mcp.server import PATH, build_server, http_app

    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((args.host, args.port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot serve on {args.host} port {args.port}: {why}") from None
        listener.listen(128)  # from here on clients can connect
        port = listener.getsockname()[1]
        app = http_app(build_server(settings), settings, args.host, port, args.allow_host)
        shown = f"[{args.host}]" if ":" in args.host else args.host
        print(f"MCP server on http://{shown}:{port}{PATH}", file=sys.stderr)
        print(settings.budget(), file=sys.stderr)
        if settings.token is not None and not os.environ.get(TOKEN):
            print(f"bearer token: {settings.token}", file=sys.stderr)
        sys.stderr.flush()
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < 16 or not given.isascii() or any(c.isspace() for c in given):
        raise UsageError(f"${TOKEN} must be at least 16 letters and digits without spaces")
    return given


def _count(flag: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag} {text}: expected a whole number of at least 1")
    return int(text)


def _steps(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        number = 0.0
    if not 1 <= number < 2**63 or number != int(number):
        raise UsageError(f"--max-env-steps {text}: expected a number such as 1e6")
    return int(number)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--max-wall-time {text}: expected a time such as 90s, 30m, 2h or 1d")
    return float(match[1]) * UNITS[match[2]]


def _print_log(root: "os.PathLike[str]", as_json: bool) -> int:
    from pathlib import Path

    from gymnasium_solver.cli.tables import print_json
    from gymnasium_solver.printable import printable
    from gymnasium_solver.runs.jsonl import read_jsonl

    entries = read_jsonl(Path(root) / ".mcp-log.jsonl")
    if as_json:
        print_json(entries)
        return 0
    if not entries:
        print(f"nothing was changed over MCP in {root}")
    for entry in entries:
        who = entry.get("who")
        if isinstance(who, dict):
            what = f"{entry.get('tool')} {entry.get('arguments')}  by {who.get('client')}"
            what += f" ({who.get('user')}@{who.get('host')}, {who.get('transport')})"
        else:
            what = f"  -> {entry.get('error') or entry.get('outcome')}"
        print(printable(f"{str(entry.get('at'))[:19]} {entry.get('change')} {what}"))
    return 0
