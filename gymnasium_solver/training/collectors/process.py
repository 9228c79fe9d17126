"""Collectors as processes on this machine, which talk through pipes.

    python -m gymnasium_solver.training.collectors.process

The process reads messages from its stdin and writes rollouts to its stdout. It ends when its stdin
is closed, so it never outlives the learner.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.training.collectors.handle import CollectorLost, Handle
from gymnasium_solver.training.collectors.messages import Message, read, write


class ProcessCollector:
    def __init__(self, start: Message):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gymnasium_solver.training.collectors.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ
            | {
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # the same modules
            },
            start_new_session=os.name == "posix",  # Ctrl-C is for training
        )
        self.send(start)

    def wait_ready(self) -> Message:
        return self._read()

    def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        try:
            write(self.process.stdin, message)
        except (OSError, ValueError):  # ValueError: closed after an earlier loss
            raise self._lost() from None

    def take(self, j: int) -> Message:
        return self._read()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self.process.kill()
        self.process.wait()

    def _read(self) -> Message:
        assert self.process.stdout is not None
        try:
            return read(self.process.stdout)
        except (EOFError, OSError, ValueError):
            raise self._lost() from None

    def _lost(self) -> CollectorLost:
        self.close()
        return CollectorLost(f"its process ended with exit code {self.process.returncode}")


class ProcessBackend:
    def start(self, message: Message) -> Handle:
        return ProcessCollector(message)

    def close(self) -> None:
        """Collectors are closed one by one."""


def main() -> None:
    # What environments print must not get between the messages.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders: IO[bytes] = sys.stdin.buffer
    with suppress(EOFError, BrokenPipeError):  # the learner is gone
        _serve(orders, answers)
    # Not an orderly exit: environments may have threads that would keep the process.
    os._exit(0)


def _serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    from gymnasium_solver.training.collectors.worker import Worker
    from gymnasium_solver.training.threads import limited_threads

    start = read(orders)
    with limited_threads(1):
        try:
            worker = Worker(start)
            write(answers, Message({"kind": "ready"}, {}))
            threading.Thread(target=_listen, args=(orders, worker.hear), daemon=True).start()
            j = start.fields["round"]
            while True:
                write(answers, worker.rollout(j))
                j += 1
        except GsolveError as error:
            write(answers, Message({"kind": "error", "text": str(error)}, {}))


def _listen(orders: IO[bytes], hear: Callable[[Message], None]) -> None:
    """Read all the time, so that the learner never waits for a rollout to give its weights."""
    try:
        while True:
            hear(read(orders))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main()
