"""Verbs that serve runs: `ui` in the browser, `mcp` to agents; and `agents-guide`."""

import os
import secrets
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.errors import needing
from gymnasium_solver.printable import printable

if TYPE_CHECKING:
    from gymnasium_solver.serve.mcp.allowed import Settings as McpSettings
    from gymnasium_solver.serve.web.security import Settings

TOKEN = "GSOLVE_MCP_TOKEN"


@verb("""
ui: Show the runs in the browser: tables, curves, comparisons; start, stop and resume
trainings. Listens on this machine only, unless --host says otherwise.

--runs-dir
--host ADDRESS=127.0.0.1    address
--port INT                  port (default: 7070, or the next free one)
--base-path PATH            prefix of all URLs, behind a proxy
--read-only                 refuse every change
--open                      open it in the browser
--allowed-host NAME         accept this name in the Host header, such as that of a proxy; repeatable
--require-token             ask for the token before reading too, where others use this machine
--max-jobs N                trainings, evaluations and recordings that the page may run at the
                            same time (default: two per CPU, at least 4)

examples:
  gsolve ui --open
  gsolve ui --runs-dir /data/runs --port 8080 --read-only
  ssh -L 7070:127.0.0.1:7070 HOST gsolve ui      # then open http://127.0.0.1:7070
  gsolve ui --host 0.0.0.0                       # other machines, with a token
""")
def ui(args: Args) -> int:
    if args.port is not None and args.port > 65535:
        raise UsageError(f"--port {args.port}: expected 0 to 65535")
    require_web()

    from gymnasium_solver.serve.web.security import Settings, clean_base_path

    settings = Settings(
        root=args.root().absolute(),
        host=args.host,
        base_path=clean_base_path(args.base_path or ""),
        read_only=args.read_only,
        allowed_hosts=tuple(args.allowed_host),
        require_token=args.require_token,
        **({} if args.max_jobs is None else {"max_jobs": args.max_jobs}),
    )
    return serve(settings, args.port, opens=args.open)


def require_web() -> None:
    """MissingError without the packages of the web app."""
    with needing("the web app is not installed: pip install 'gymnasium-solver[ui]'"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401


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


@verb("""
mcp: Serve the Model Context Protocol, so that agents can train, watch, debug and compare.
Without --http it talks over stdin and stdout; a client starts it.

--http                      serve over HTTP instead of stdio
--host ADDRESS=127.0.0.1    address
--port INT=8765             port; 0: any free one
--allow-host NAME           accept this Host name; repeatable
--read-only                 nothing can be changed
--allow-write               over HTTP: allow changes with the token
--allow-publish             runs may be sent to the Hub and to W&B
--max-trainings N=2         trainings at once
--max-env-steps COUNT       most env steps of one training
--max-wall-time TIME        save and stop a training after 90s, 30m, 2h, 1d
--total-env-steps COUNT     most env steps of all trainings, from the server's start
--total-time TIME           the same in time of training
--structured                answers also as JSON, for programs; a model needs the text only
--log                       print what was changed over MCP
--json --runs-dir

examples:
  gsolve mcp
  gsolve mcp --read-only
  gsolve mcp --max-trainings 2 --max-env-steps 1e6 --max-wall-time 2h --total-env-steps 2e7
  gsolve mcp --http --port 8765
  gsolve mcp --http --allow-write
  gsolve mcp --log

With --http nothing can be changed unless --allow-write is given; changes then need the
bearer token of $GSOLVE_MCP_TOKEN, or the one that is printed at the start.
""")
def mcp(args: Args) -> None:
    root = args.root().absolute()
    if args.log:
        from gymnasium_solver.runs.jsonl import read_jsonl

        entries = read_jsonl(root / ".mcp-log.jsonl")
        lines = []
        for entry in entries:
            who = entry.get("who")
            what = f"  -> {entry.get('error') or entry.get('outcome')}"
            if isinstance(who, dict):
                what = f"{entry.get('tool')} {entry.get('arguments')}  by {who.get('client')}"
                what += f" ({who.get('user')}@{who.get('host')}, {who.get('transport')})"
            lines.append(printable(f"{str(entry.get('at'))[:19]} {entry.get('change')} {what}"))
        out.tell(args, entries, *lines or [f"nothing was changed over MCP in {root}"])
        return
    with needing(
        "the MCP server needs the package mcp: pip install 'gymnasium-solver[mcp]'", UsageError
    ):
        import mcp.server  # noqa: F401
    from gymnasium_solver.serve.mcp.allowed import Settings
    from gymnasium_solver.serve.mcp.server import build_server
    from gymnasium_solver.serve.web.security import is_loopback

    token = None
    if args.http and (args.allow_write or not is_loopback(args.host)):
        token = os.environ.get(TOKEN, secrets.token_urlsafe(24))
        if len(token) < 16 or not token.isascii() or any(c.isspace() for c in token):
            raise UsageError(f"${TOKEN} must be at least 16 letters and digits without spaces")
    settings = Settings(
        root=root,
        is_read_only=args.read_only or (args.http and not args.allow_write),
        max_trainings=args.max_trainings,
        max_env_steps=args.max_env_steps,
        max_wall_s=args.max_wall_time,
        total_env_steps=args.total_env_steps,
        total_train_s=args.total_time,
        token=token,
        transport="http" if args.http else "stdio",
        allow_publish=args.allow_publish,
        is_structured=args.structured,
    )
    if args.http:
        _serve_http(settings, args)
    else:
        build_server(settings).run("stdio")


def _serve_http(settings: "McpSettings", args: Args) -> None:
    import uvicorn

    from gymnasium_solver.serve.mcp.server import PATH, build_server, http_app
    from gymnasium_solver.serve.web.app import listen

    with listen(args.host, args.port, any_port=False) as listener:
        port = listener.getsockname()[1]
        app = http_app(build_server(settings), settings, args.host, port, args.allow_host)
        shown = f"[{args.host}]" if ":" in args.host else args.host
        lines = [f"MCP server on http://{shown}:{port}{PATH}", settings.budget()]
        if settings.token is not None and not os.environ.get(TOKEN):
            lines.append(f"bearer token: {settings.token}")
        print(*lines, sep="\n", file=sys.stderr, flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
        uvicorn.Server(config).run(sockets=[listener])


@verb("""
agents-guide: Print the guide for coding agents, as Markdown: put it where your agent reads it.

examples:
  gsolve agents-guide
  gsolve agents-guide >> AGENTS.md
""")
def agents_guide(args: Args) -> None:
    from gymnasium_solver.serve import guide_text

    print(guide_text(), end="")
