"""A helper process that answers JSON lines: started on demand, ended when idle, replaced if it
dies. Neither its crash nor a question that takes too long harms the server."""

import asyncio
import itertools
import json
import sys
from typing import Any

from gymnasium_solver.errors import GsolveError

IDLE_S = 300.0
ANSWER_S = 60.0


class WorkerError(GsolveError):
    """The helper process died or did not answer."""


class LineWorker:
    """`answer = await worker.ask({...})`; one question at a time."""

    def __init__(self, module: str, idle_s: float = IDLE_S) -> None:
        self.module, self.idle_s = module, idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._lock: asyncio.Lock | None = None
        self._ids = itertools.count(1)
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            self._stay()
            for is_last in (False, True):  # a worker that died meanwhile is replaced once
                try:
                    return await asyncio.wait_for(self._ask(question), ANSWER_S)
                except (OSError, EOFError) as error:
                    await self.close()
                    if is_last:
                        raise WorkerError(f"the helper process ended: {error}") from None
                except TimeoutError:
                    await self.close()
                    raise WorkerError(f"no answer within {ANSWER_S:g} s") from None
        raise AssertionError

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        number = next(self._ids)
        process.stdin.write(json.dumps({**question, "id": number}).encode() + b"\n")
        await process.stdin.drain()
        while True:
            line = await process.stdout.readline()
            if not line:
                raise EOFError("no more output")
            reply: dict[str, Any] = json.loads(line)
            if reply.get("id") == number:
                return reply

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self.module,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                limit=2**24,
            )  # fmt: skip
        return self._process

    def _stay(self) -> None:
        """Put off its end."""
        if self._idle is not None:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self.idle_s, lambda: loop.create_task(self.close()))

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
