"""The worker process that plays episodes (media/inspect_worker.py), seen from the server.

    worker = InspectWorker(root)
    started = await worker.play({"run": ..., "seed": 3})       # {"run": ..., "episode": ...}
    why = await worker.ask({"op": "saliency", ...})
    await worker.close()

It starts with the first question and ends after `idle_s` without one. If it dies at any moment, its
episode becomes "interrupted" and the questions that it had not begun to answer go to another
process; one that ends two processes fails with a WorkerError. Questions and answers are lines of
JSON.
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
START_S = 180.0  # until the first frame: imports, a checkpoint, an environment
LONGEST_LINE = 1 << 26
MOST_WAITING = 16
_KINDS: dict[str, type[GsolveError]] = {
    "TrustError": TrustError,
    "RunError": RunError,
    "ConfigError": ConfigError,
    "EnvError": EnvError,
}


class WorkerError(GsolveError):
    """The worker process is gone, or does not answer."""


class WorkerDied(WorkerError):
    """The process ended with questions unanswered."""


class InspectWorker:
    def __init__(self, root: Path, idle_s: float = IDLE_S) -> None:
        self.root, self.idle_s = root, idle_s
        self.process: asyncio.subprocess.Process | None = None
        self.n_starts = 0
        self._ids = itertools.count(1)
        self._starts: dict[int, Answer] = {}
        self._ends: dict[int, Answer] = {}
        self._playing: dict[str, int] = {}
        """Episode -> id of its job."""
        self._said: deque[str] = deque(maxlen=20)
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None

    async def play(self, job: dict[str, Any]) -> dict[str, Any]:
        """Returns as soon as the episode can be read; it goes on being played."""
        return await self._twice({**job, "op": "play"})

    async def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        return await self._twice(job)

    async def _twice(self, job: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._once(job)
        except WorkerDied:  # perhaps of another question
            return await self._once(job)

    async def _once(self, job: dict[str, Any]) -> dict[str, Any]:
        start, end = await self._send(job)
        done, _ = await asyncio.wait(
            (start, end), timeout=START_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise WorkerError("the worker does not answer; try again")
        return start.result() if start in done else end.result()

    async def stop(self, episode: str) -> bool:
        """End an episode that is being played; whether it was."""
        number = self._playing.get(episode)
        if number is None or not self.is_alive:
            return False
        await self._write({"op": "stop", "id": number})
        return True

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    # -- questions --------------------------------------------------------------------------

    async def _send(self, job: dict[str, Any]) -> tuple[Answer, Answer]:
        """The beginning and the end of the answer."""
        if len(self._ends) >= MOST_WAITING:
            raise WorkerError("too many episodes are being played; wait for one to end")
        async with self._lock:
            if not self.is_alive:
                await self._start()
        number = next(self._ids)
        loop = asyncio.get_running_loop()
        start = self._starts[number] = loop.create_future()
        end = self._ends[number] = loop.create_future()
        end.add_done_callback(_seen)
        self._rest(None)
        await self._write({**job, "id": number})
        return start, end

    async def _write(self, message: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has just died; reading its output fails the question

    # -- the process ------------------------------------------------------------------------

    async def _start(self) -> None:
        package = str(Path(__file__).parents[3])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gymnasium_solver.media.inspect_worker",
            str(self.root),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SDL_VIDEODRIVER": "dummy"},
        )
        self.n_starts += 1
        self._said.clear()
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
            self._fail_all(f"the worker ended with code {process.returncode}{self._last_words()}")

    async def _overhear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError, asyncio.LimitOverrunError):
            while line := await process.stderr.readline():
                self._said.append(line.decode(errors="replace").rstrip())

    def _hear(self, answer: dict[str, Any]) -> None:
        number = answer.get("id")
        if not isinstance(number, int):
            return
        start, end = self._starts.get(number), self._ends.get(number)
        if "started" in answer:
            self._playing[answer["started"]["episode"]] = number
            if start is not None and not start.done():
                start.set_result(answer["started"])
            return
        if end is not None and not end.done():
            if "error" in answer:
                kind = _KINDS.get(str(answer.get("kind")), GsolveError)
                end.set_exception(kind(str(answer["error"])))
            else:
                end.set_result(answer["done"])
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._starts.pop(number, None)
        self._ends.pop(number, None)
        self._playing = {name: job for name, job in self._playing.items() if job != number}
        if not self._ends:
            self._rest(self.idle_s)

    def _fail_all(self, why: str) -> None:
        self.process = None
        for future in self._ends.values():
            if not future.done():
                future.set_exception(WorkerDied(why))
        self._starts.clear()
        self._ends.clear()
        self._playing.clear()

    def _last_words(self) -> str:
        words = [line for line in self._said if line.strip()]
        return f": {words[-1][:300]}" if words else ""

    def _rest(self, seconds: float | None) -> None:
        """End the process after so long; None: not now."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if seconds is not None:
            self._idle = asyncio.get_running_loop().call_later(seconds, self._end)

    def _end(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()  # it ends with its stdin
            self.process = None  # the next question starts another one

    async def close(self) -> None:
        self._rest(None)
        process = self.process
        if process is not None and process.returncode is None:
            self._end()
            try:
                await asyncio.wait_for(process.wait(), 3)
            except TimeoutError:
                process.kill()
        for task in list(self._tasks):
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(task, 3)


def _seen(future: Answer) -> None:
    """An error that nobody waits for any more is not reported as lost."""
    if not future.cancelled():
        future.exception()
