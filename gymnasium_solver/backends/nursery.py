"""A process that has imported what workers need, and forks them: they start without the imports.

    nursery = Nursery(["gymnasium_solver.training.loop"])    # returns at once, imports meanwhile
    job = local.start(argv, folder, nursery=nursery)         # argv: [python, "-m", module, ...]

Importing torch takes seconds, which a coordinator spends on reading configs anyway. The nursery
spends them at the same time, and once for all workers. It runs nothing but imports, has no threads
of its own and never touches a GPU, so that a fork of it is as good as a new process. Workers have
sessions of their own and outlive it; it ends when its socket closes, also if its owner is killed.
It reports how its workers ended, as only a parent is told.

Not on Windows, which cannot fork, nor on macOS, whose libraries do not survive it: `start` returns
None there, and wherever the nursery has failed. A new process does the same, later.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from gymnasium_solver.backends.local import claim

CAN_FORK = sys.platform == "linux"
REPORT_S = 0.05  # how often the nursery looks for workers that have ended
START_S = 60.0  # imports included


class Nursery:
    """The nursery as its owner sees it."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self.exit_codes: dict[int, int] = {}
        """Of workers that have ended, by process id; as in subprocess."""
        if not CAN_FORK:
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(
        self, argv: Sequence[str], folder: Path, log: Path, env: Mapping[str, str], cpus: int | None
    ) -> "Forked | None":
        """Fork a worker that records itself in `folder` (local.claim) and becomes `argv`. None if
        there is no nursery, or not any more."""
        if self._socket is None or list(argv[:2]) != [sys.executable, "-m"]:
            return None
        request = {"argv": list(argv), "folder": str(folder), "log": str(log), "cpus": cpus or 0}
        request |= {"env": dict(env), "cwd": os.getcwd()}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while True:
                if (answer := self._read(START_S)) is None:
                    raise OSError("no answer")
                if "forked" in answer:
                    return Forked(self, answer["forked"])
        except OSError:
            self.close()
            return None
        except BaseException:  # Ctrl-C: the worker that it would fork next is not wanted
            self.close()
            raise

    def poll(self, pid: int) -> int | None:
        """The exit code of a worker; None while it runs, or if it will never be known."""
        with suppress(OSError):
            while pid not in self.exit_codes and self._read(0.0) is not None:
                pass
        return self.exit_codes.get(pid)

    def close(self) -> None:
        """End the nursery at once; workers go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; None if there is none in this time."""
        while b"\n" not in self._unread:
            if self._socket is None or not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            received = self._socket.recv(65536)
            if not received:
                raise OSError("the nursery has ended")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "ended" in message:
            self.exit_codes[message["ended"]] = message["code"]
        return message


class Forked:
    """A worker of a nursery, with what is needed of `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid

    def poll(self) -> int | None:
        return self._nursery.poll(self.pid)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


# -- in the nursery -------------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    handle, *modules = words
    connection = socket.socket(fileno=int(handle))
    for name in modules:
        with suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(name)
    gc.freeze()  # what is imported stays: looking through it would copy its memory
    request = serve(connection)
    if request is None:
        return 0
    become(request)


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork a worker for each request. Returns the request in the worker, None at the end."""
    workers: set[int] = set()
    unread = b""
    while True:
        ready, _, _ = select.select([connection], [], [], REPORT_S if workers else None)
        if ready:
            received = connection.recv(65536)
            if not received:
                return None
            *lines, unread = (unread + received).split(b"\n")
            for line in lines:
                if (pid := os.fork()) == 0:
                    connection.close()
                    request: dict[str, Any] = json.loads(line)
                    return request
                workers.add(pid)
                connection.sendall(json.dumps({"forked": pid}).encode() + b"\n")
        for pid in list(workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                workers.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                connection.sendall(json.dumps({"ended": pid, "code": code}).encode() + b"\n")


def become(request: Mapping[str, Any]) -> NoReturn:
    """Run what was asked for, as a process that was started for it would."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for place in (1, 2):
        os.dup2(output, place)
    os.close(output)
    argv = list(request["argv"])
    refusal = claim(Path(request["folder"]), int(request["cpus"]), argv)
    if isinstance(refusal, int):
        sys.exit(refusal)
    _, _, module, *words = argv
    sys.argv = [module, *words]
    # As `python -m` does; the module finds itself among those imported, which is no reason to warn.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
