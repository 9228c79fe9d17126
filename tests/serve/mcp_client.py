"""Calls of the MCP server as a client makes them."""

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

import gymnasium_solver as gs
from tests.small import RUN

GSOLVE = (sys.executable, "-m", "gymnasium_solver")
TOKEN = "a-token-of-the-tests"
TINY = RUN | {"max_env_steps": 128}
ENDLESS = TINY | {"max_env_steps": 500_000_000, "eval_freq_epochs": 200}


class Caller:
    """Calls tools of one connected client; `data` fails where the tool does."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def result(self, tool: str, /, **arguments: Any) -> Any:
        return await self.client.call_tool(tool, arguments)

    async def data(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert not result.is_error, result.content[0].text
        content: dict[str, Any] = result.structured_content
        return content

    async def error(self, tool: str, /, **arguments: Any) -> str:
        result = await self.result(tool, **arguments)
        assert result.is_error, result.content[0].text
        return str(result.content[0].text)

    async def until(
        self, holds: Callable[[dict[str, Any]], bool], tool: str, /, **arguments: Any
    ) -> dict[str, Any]:
        """Ask again and again."""
        with anyio.fail_after(150):
            while not holds(found := await self.data(tool, **arguments)):
                await anyio.sleep(0.3)
        return found


def with_server(root: Path, story: Callable[[Caller], Any], **settings: Any) -> None:
    """Run an async story against a server in this process."""
    from mcp import Client

    from gymnasium_solver.serve.mcp.allowed import Settings
    from gymnasium_solver.serve.mcp.server import build_server

    server = build_server(Settings(root, **({"is_structured": True} | settings)))

    async def run() -> None:
        async with Client(server) as client:
            await story(Caller(client))

    anyio.run(run)


def served(**settings: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test that gets a client (`call`) of a server over the folder of the fixture `root`."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        taken = inspect.signature(test).parameters
        fixtures = {name: one for name, one in taken.items() if name != "call"}

        @functools.wraps(test)
        def run(root: Path, **more: Any) -> None:
            given = more | {"root": root} if "root" in taken else more
            with_server(root, lambda call: test(call, **given), **settings)

        own = inspect.Parameter("root", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown = inspect.Signature(list(({"root": own} | fixtures).values()))
        run.__signature__ = shown  # type: ignore[attr-defined]
        return run

    return decorate


def tiny_run(root: Path, **fields: Any) -> gs.Run:
    return gs.train("CartPole-v1:ppo", runs_dir=root, **{**TINY, **fields})


def over_stdio(
    root: Path, story: Callable[[Caller], Any], *flags: str, program: Sequence[str] = GSOLVE
) -> None:
    from mcp import Client, StdioServerParameters

    async def run() -> None:
        words = [*program[1:], "mcp", "--runs-dir", str(root), "--structured", *flags]
        server = StdioServerParameters(command=program[0], args=words, env=dict(os.environ))
        async with Client(server) as client:
            await story(Caller(client))

    anyio.run(run)


@contextmanager
def http_server(root: Path, *flags: str, program: Sequence[str] = GSOLVE) -> Iterator[str]:
    """The address of a server in another process."""
    env = {**os.environ, "GSOLVE_MCP_TOKEN": TOKEN}
    words = [*program, "mcp", "--http", "--port", "0", "--runs-dir", str(root), *flags]
    words.append("--structured")
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=env, text=True) as server:
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()
            server.communicate(timeout=20)


def over_http(address: str, story: Callable[[Caller], Any], token: str | None = None) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def run() -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            await story(Caller(client))

    anyio.run(run)
