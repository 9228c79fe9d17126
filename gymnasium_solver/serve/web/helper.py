"""A helper process seen from the server: torch and environments are imported there, not here.

    player = Helper("gymnasium_solver.media.inspect_worker", str(root))
    started = await player.ask({"op": "play", "run": ..., "seed": 3})
    why = await player.ask({"op": "saliency", ...})
    await player.close()

It starts with the first question and ends after `idle_s` without one. Questions and answers are
lines of JSON: {"id": 1, ...} is answered by {"id": 1, "done": {...}} or {"id": 1, "error": text,
"kind": class of the error}, perhaps after {"id": 1, "started": {...}}, which is an answer too, and
after any number of {"id": 1, "phase": text}, which say what it is doing. If
the process dies, the questions that it had not begun to answer go to another one; a question that
ends two processes fails with a HelperError.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import ConfigError, EnvError, GsolveError, RunError, TrustError

Answer = asyncio.Future[dict[str, Any]]
IDLE_S = 300.0
ANSWER_S = 180.0  # until the first frame: imports, a checkpoint, an environment
LONGEST_LINE = 1 << 26
MOST_WAITING = 16
_KINDS = {kind.__name__: kind for kind in (TrustError, RunError, ConfigError, EnvError)}


class HelperError(GsolveError):
    """The helper process is gone, or does not answer."""


class HelperDied(HelperError):
    """The process ended with questions unanswered."""


class Helper:
    def __init__(
        self, module: str, *words: str, idle_s: float = IDLE_S, answer_s: float = ANSWER_S
    ) -> None:
        self.argv = [sys.executable, "-m", module, *words]
        self.idle_s, self.answer_s = idle_s, answer_s
        self.process: asyncio.subprocess.Process | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, Answer] = {}
        """Questions without an answer yet, not even that they have started."""
        self._started: dict[int, dict[str, Any]] = {}
        """Questions that are being worked on, with what was told about them."""
        self.phase = ""  # what is being done before the first answer, in words
        self._said: deque[str] = deque(maxlen=20)
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, or that it has started."""
        try:
            return await self._ask(question)
        except HelperDied:  # perhaps of another question
            return await self._ask(question)

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if len(self._waiting) + len(self._started) >= MOST_WAITING:
            raise HelperError("too many questions are being answered; wait for one to end")
        async with self._lock:
            if not self.is_alive:
                await self._start()
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._rest(None)
        await self._write({**question, "id": number})
        try:
            return await asyncio.wait_for(answer, self.answer_s)
        except TimeoutError:
            self._forget(number)
            if not self._started and self.process is not None:
                self.process.kill()  # it hangs: the next question starts another one
            raise HelperError(f"no answer within {self.answer_s:g} s; try again") from None

    async def stop(self, **told: Any) -> bool:
        """End the work of which `told` was said at its start; whether there was any."""
        for number, start in self._started.items():
            if told.items() <= start.items() and self.is_alive:
                await self._write({"op": "stop", "id": number})
                return True
        return False

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def _write(self, message: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has just died; reading its output fails the question

    async def _start(self) -> None:
        package = str(Path(__file__).parents[3])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = await asyncio.create_subprocess_exec(
            *self.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SDL_VIDEODRIVER": "dummy"},
        )
        self._said.clear()
        self.phase = "starting Python and torch"
        for work in (self._listen(self.process), self._overhear(self.process)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._hear(json.loads(line))
        except (ValueError, asyncio.LimitOverrunError):  # not an answer of ours
            process.kill()
        await process.wait()
        if process is self.process:
            words = [line for line in self._said if line.strip()]
            last = f": {words[-1][:300]}" if words else ""
            self.process = None
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(
                        HelperDied(f"the helper process ended with code {process.returncode}{last}")
                    )
            self._waiting.clear()
            self._started.clear()

    async def _overhear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError, asyncio.LimitOverrunError):
            while line := await process.stderr.readline():
                self._said.append(line.decode(errors="replace").rstrip())

    def _hear(self, told: dict[str, Any]) -> None:
        number = told.get("id")
        self.phase = str(told.get("phase", ""))
        if "phase" in told:
            return
        answer = self._waiting.pop(number, None) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            if "error" in told:
                kind = _KINDS.get(str(told.get("kind")), GsolveError)
                answer.set_exception(kind(str(told["error"])))
            else:
                answer.set_result(told.get("started") or told["done"])
        if "started" in told and isinstance(number, int):
            self._started[number] = told["started"]
        elif isinstance(number, int):
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._started.pop(number, None)
        if not self._waiting and not self._started:
            self._rest(self.idle_s)

    def _rest(self, seconds: float | None) -> None:
        """End the process after this many seconds; None: not now."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if seconds is not None:
            self._idle = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """It ends with its stdin; the next question starts another one."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process = None

    async def close(self) -> None:
        self._rest(None)
        process = self.process
        if process is not None and process.returncode is None:
            self.end()
            try:
                await asyncio.wait_for(process.wait(), 3)
            except TimeoutError:
                process.kill()
        for task in list(self._tasks):
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(task, 3)
