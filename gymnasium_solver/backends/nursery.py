"""A process that has imported what workers need, and forks them: they start without the imports.

Importing torch takes seconds, which a coordinator spends on reading configs anyway. The nursery
spends them at the same time, and once for all workers. It runs nothing but imports, has no threads
of its own and never touches a GPU, so that a fork of it is as good as a new process. Workers have
sessions of their own and outlive it; it ends when its input closes, also if its owner is killed.

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
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from gymnasium_solver.backends.local import claim, find, record
from gymnasium_solver.runs import machine

CAN_FORK = sys.platform == "linux"
START_S = 60.0  # imports included


class Nursery:
    """The nursery as its owner sees it: requests go in, process ids of workers come out."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if CAN_FORK:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(
        self, argv: Sequence[str], folder: Path, log: Path, env: Mapping[str, str], cpus: int | None
    ) -> "Forked | None":
        """Fork a worker that records itself in `folder` (local.claim) and becomes `argv`. None if
        there is no nursery, or not any more."""
        if self._process is None or list(argv[:2]) != [sys.executable, "-m"]:
            return None
        request = {"argv": list(argv), "folder": str(folder), "log": str(log), "cpus": cpus or 0}
        request |= {"env": dict(env), "cwd": os.getcwd()}
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            if not select.select([answers], [], [], START_S)[0]:
                raise OSError("no answer")
            return Forked(int(answers.readline()), folder)
        except (OSError, ValueError):  # it has ended
            self.close()
            return None
        except BaseException:  # Ctrl-C: the worker that it would fork next is not wanted
            self.close()
            raise

    def close(self) -> None:
        """End the nursery at once; workers go on."""
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):
                self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Forked:
    """A worker of a nursery, with what is needed of `subprocess.Popen`."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self._folder = pid, folder

    def poll(self) -> int | None:
        """The exit code, or None while it runs; that of SIGKILL if it recorded none."""
        if machine.is_alive(self.pid):
            return None
        job = find(self._folder)
        is_recorded = job is not None and job.pid == self.pid and job.ended_with is not None
        return job.ended_with if job is not None and is_recorded else -signal.SIGKILL

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


# -- in the nursery -------------------------------------------------------------------------------


def main(modules: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)  # for what the imports print
    for name in modules:
        with suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(name)
    gc.freeze()  # what is imported stays: looking through it would copy its memory
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers are not waited for
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            answers.close()
            become(json.loads(line), nothing)
        print(pid, file=answers, flush=True)
    return 0


def become(request: Mapping[str, Any], nothing: int) -> NoReturn:
    """Run what was asked for, as a process that was started for it would."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for place, handle in enumerate((nothing, output, output)):
        os.dup2(handle, place)
    os.close(output)
    os.close(nothing)
    sys.stdin = os.fdopen(0)
    folder, argv = Path(request["folder"]), list(request["argv"])
    if (refusal := claim(folder, int(request["cpus"]), argv)) is not None:
        sys.exit(refusal)
    _, _, module, *words = argv
    sys.argv = [module, *words]
    # As `python -m` does; the module finds itself among those imported, which is no reason to warn.
    sys.modules.pop(module, None)
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    if (job := find(folder)) is not None:
        record(folder, job, ended_with=code)
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
