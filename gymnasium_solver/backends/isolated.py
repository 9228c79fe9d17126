"""Runs many small jobs in separate processes, so that a crash or a hang affects only one job.

    for outcome in run_isolated("gymnasium_solver.training.config_tests:smoke", names, jobs=2):
        print(outcome.item, outcome.value, outcome.error)

A process runs several jobs in sequence, since importing torch takes longer than most jobs. It is
replaced when it dies or exceeds the timeout. Items and results are JSON. Output of a job is
discarded, except for the last line of a process that died, which becomes part of its error.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """The result of one item: the value that the task returned, or an error."""

    item: Any
    value: Any = None
    error: str | None = None


def run_isolated(
    task: str, items: Iterable[Any], *, jobs: int = 1, timeout_s: float = 120.0
) -> Iterator[Outcome]:
    """Call the function `module:name` with each item; yields outcomes in order of completion."""
    own = threading.local()
    workers: list[_Worker] = []

    def do(item: Any) -> Outcome:
        if getattr(own, "worker", None) is None:
            own.worker = _Worker(task)
            workers.append(own.worker)
        outcome: Outcome = own.worker.do(item, timeout_s)
        return outcome

    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures: list[Future[Outcome]] = [pool.submit(do, item) for item in items]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that runs jobs; it is restarted when it dies."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.process: subprocess.Popen[str] | None = None
        self.noise: Any = None

    def do(self, item: Any, timeout_s: float) -> Outcome:
        process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            self.noise.seek(0)  # in the process too: output of this job starts here
            self.noise.truncate()
            process.stdin.write(json.dumps(item) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            return Outcome(item, error=self._why_it_died(process, late.is_set(), timeout_s))
        answer = json.loads(line)
        return Outcome(item, answer.get("value"), answer.get("error"))

    def _start(self) -> "subprocess.Popen[str]":
        self.noise = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (as it lives)
        # One thread: several processes with a thread pool each slow each other down.
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gymnasium_solver.backends.isolated", self.task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.noise,
            text=True,
            env=environment,
        )
        return self.process

    def _why_it_died(
        self, process: "subprocess.Popen[str]", is_late: bool, timeout_s: float
    ) -> str:
        self.process = None
        if is_late:
            process.wait()
            return f"took longer than {timeout_s:g} s"
        code = process.wait()
        self.noise.seek(0)
        lines = [line for line in self.noise.read().splitlines() if line.strip()]
        last = f": {lines[-1].strip()}" if lines else ""
        what = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        return f"the process {what}{last}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def serve(task: str) -> None:
    """The worker side: read items, answer each with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the job must not mix with the answers
    module, _, name = task.partition(":")
    function = getattr(import_module(module), name)
    for line in sys.stdin:
        try:
            answer = {"value": function(json.loads(line))}
        except Exception as error:  # reported in one line; the other jobs continue
            first, *more = str(error).splitlines() or [""]
            text = f"{first} {more[0].strip()}" if first.endswith(":") and more else first
            answer = {"error": f"{type(error).__name__}: {text}"}
        sys.stdout.flush()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
