"""Calls of the MCP server as a client makes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

import gymnasium_solver as gs

TINY: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 16,
    "eval_freq_epochs": 1,
    "eval_episodes": 2,
    "test_episodes": 3,
    "hidden_dims": [8],
    "batch_size": 16,
    "n_epochs": 1,
    "early_stop_on_eval_threshold": None,
    "max_env_steps": 128,
}
ENDLESS: dict[str, Any] = TINY | {"max_env_steps": 500_000_000, "eval_freq_epochs": 200}


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


def with_server(root: Path, story: Callable[[Caller], Any], **settings: Any) -> None:
    """Run an async story against a server in this process."""
    from mcp import Client

    from gymnasium_solver.serve.mcp.server import build_server
    from gymnasium_solver.serve.mcp.settings import Settings

    async def run() -> None:
        async with Client(build_server(Settings(root, **settings))) as client:
            await story(Caller(client))

    anyio.run(run)


def tiny_run(root: Path, **fields: Any) -> gs.Run:
    return gs.train("CartPole-v1:ppo", runs_dir=root, **{**TINY, **fields})
