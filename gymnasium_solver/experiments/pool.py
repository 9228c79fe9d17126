"""The coordinator of experiments and searches: runs trainings side by side, and takes up where a
killed coordinator or worker left off.

    pool = Pool(jobs=2)
    pool.add(Task(folder, ("CartPole-v1:ppo", "--seed", "1")))
    pool.run(on_change=print)

A task is `gsolve train ... --run-dir FOLDER --if-exists resume`. What is to be done with it is read
from its folder: a running one is attached to, a finished one collected, a killed or preempted one
resumed exactly, and one that was never started is started. Workers are detached: they survive the
coordinator, and a new one finds them. A search adds tasks while the pool runs.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gymnasium_solver.backends import local
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.run import Run, is_alive_here, is_run, live_status
from gymnasium_solver.runs.words import OF_THE_ENV

MAX_RESTARTS = 5  # in a row, from the same checkpoint
POLL_S = 0.2
WAITING, RUNNING = "waiting", "running"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"
USAGE_ERROR = 2  # exit code of a command line or config that is wrong: no retry helps


class Backend(Protocol):
    """Where tasks run: an argv in a folder that is known before the start."""

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object: ...
    def is_running(self, folder: Path) -> bool: ...
    def exit_code(self, folder: Path) -> int | None: ...
    def stuck(self, folder: Path) -> int:
        """How many starts in a row began from the newest checkpoint, the last one included."""

    def stop(self, folder: Path) -> object: ...
    def tail(self, folder: Path, lines: int = 20) -> list[str]: ...


@dataclass
class Task:
    """One training: its folder, known before the start, and the words after `gsolve train`."""

    folder: Path
    words: tuple[str, ...]
    label: str = ""
    state: str = WAITING
    reason: str = ""  # why it failed
    restarts: int = 0  # starts by this coordinator after the first
    is_stopping: bool = field(default=False, repr=False)

    @property
    def place(self) -> tuple[str, ...]:
        """The words that put the run into its folder, also if it is there already."""
        return "--run-dir", str(self.folder), "--if-exists", "resume", "--quiet", "--no-keys"

    @property
    def argv(self) -> list[str]:
        return local.gsolve("train", *self.words, *self.place)

    @property
    def is_over(self) -> bool:
        return self.state in (FINISHED, FAILED, STOPPED)

    @property
    def runs(self) -> list[Path]:
        """The folders of the runs that it trains."""
        return [self.folder]

    def outcome(self) -> str | None:
        """What the folders say: finished if all runs are, failed if the others have failed, or
        None: to be started or resumed."""
        states = {live_status(meta) if (meta := meta_of(run)) else None for run in self.runs}
        if states == {FINISHED}:
            return FINISHED
        return FAILED if states <= {FINISHED, FAILED} else None

    def why(self, backend: Backend) -> str:
        """The reason of a failure: what the runs recorded, or the last line of the output."""
        reasons = []
        for run in self.runs:
            meta = meta_of(run)
            if detail := meta.get("stop_detail"):
                if detail == OF_THE_ENV:
                    detail = str(meta.get("error") or detail).partition("\n")[0]
                if len(self.runs) == 1:
                    return str(detail)
                if live_status(meta) == FAILED:
                    reasons.append(f"{run.name}: {detail}")
        if reasons:
            return "; ".join(reasons)
        lines = [line.strip() for line in backend.tail(self.folder, 20) if line.strip()]
        errors = [line for line in lines if line.startswith("gsolve train:")]
        return (errors or lines or ["it wrote nothing"])[-1]


@dataclass
class Segment(Task):
    """A run that is continued in its folder, with other values."""

    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def argv(self) -> list[str]:
        flags = [word for name, value in self.changes
                 for word in ("--set", f"{name}={json.dumps(value)}")]  # fmt: skip
        return local.gsolve("train", "--resume", str(self.folder), *flags, "--quiet", "--no-keys")


OnChange = Callable[[Task], None]


class Pool:
    """Runs up to `jobs` tasks at a time. `step` does what is due now and returns at once."""

    def __init__(
        self, jobs: int = 1, *, backend: Backend | None = None, retry_failed: bool = False
    ) -> None:
        """`retry_failed`: try runs that have failed earlier once more."""
        self.backend: Backend = backend or local.LocalBackend()
        most = getattr(self.backend, "most_jobs", None)  # by the GPUs that each gets
        self.jobs = max(1, jobs if most is None else min(jobs, most))
        self.cpus = max(1, cpu_count() // self.jobs)
        """CPUs for the threads of one task: an equal share of this machine's."""
        self.retry_failed = retry_failed
        self.tasks: list[Task] = []

    def add(self, task: Task) -> Task:
        """Take up a task: attach to it, collect it, or queue it."""
        self.tasks.append(task)
        if self._is_running(task):
            task.state = RUNNING
        elif (state := task.outcome()) == FINISHED:
            task.state = FINISHED
        elif state == FAILED and not self.retry_failed:
            task.state, task.reason = FAILED, task.why(self.backend)
        return task

    def step(self) -> list[Task]:
        """Settle tasks that have ended, start those that are due; returns the changed ones."""
        changed = [t for t in self.tasks if t.state == RUNNING and not self._is_running(t)]
        for task in changed:
            self._settle(task)
        free = self.jobs - sum(task.state == RUNNING for task in self.tasks)
        due = [task for task in self.tasks if task.state == WAITING][: max(0, free)]
        for task in due:
            self._start(task)
        return changed + [task for task in due if task not in changed]

    def run(
        self,
        work: Iterator[bool] | None = None,
        *,
        on_change: OnChange | None = None,
        on_poll: Callable[[], None] | None = None,
    ) -> None:
        """Run what `work` adds until it ends, or else all tasks to their ends. `work` yields
        whether it has done something. An exception, such as Ctrl-C, stops the running tasks; they
        save, and can be resumed."""
        try:
            for is_busy in self.waiting_for(self.tasks) if work is None else work:
                changed = self.step()
                for task in changed:
                    if on_change is not None:
                        on_change(task)
                if on_poll is not None:
                    on_poll()
                if not is_busy and not changed:
                    time.sleep(POLL_S)
        except BaseException:
            self.stop_all()
            raise

    def waiting_for(self, tasks: Sequence[Task]) -> Iterator[bool]:
        """The work of training these to their ends."""
        while not all(task.is_over for task in tasks):
            yield False

    def running(self) -> list[Task]:
        return [task for task in self.tasks if task.state == RUNNING]

    def stop(self, task: Task) -> None:
        """Ask a task to save and end; it is not started again."""
        if task.state == WAITING:
            task.state = STOPPED
        elif task.state == RUNNING:
            task.is_stopping = True
            self.backend.stop(task.folder)

    def stop_all(self, wait_s: float = 60.0) -> None:
        """Stop every task and wait until the running ones have saved."""
        for task in self.tasks:
            self.stop(task)
        deadline = time.monotonic() + wait_s
        while self.running() and time.monotonic() < deadline:
            self.step()
            time.sleep(0.05)

    def _is_running(self, task: Task) -> bool:
        """Whether a process trains it, possibly another one: `gsolve train --resume` by hand."""
        if self.backend.is_running(task.folder):
            return True
        return any(is_alive_here(meta_of(run)) for run in task.runs)

    def _start(self, task: Task) -> None:
        task.state = RUNNING
        try:
            self.backend.start(task.argv, task.folder, cpus=self.cpus)
        except local.BackendError as error:
            if not self._is_running(task):  # another coordinator was faster
                task.state, task.reason = FAILED, str(error)

    def _settle(self, task: Task) -> None:
        """Decide about a task whose process has ended."""
        state = task.outcome()
        if state == FINISHED:
            task.state = FINISHED
        elif task.is_stopping:
            task.state = STOPPED
        elif state == FAILED or self.backend.exit_code(task.folder) == USAGE_ERROR:
            task.state, task.reason = FAILED, task.why(self.backend)
        elif self.backend.stuck(task.folder) > MAX_RESTARTS:
            stuck = f"ended {MAX_RESTARTS + 1} times without a new checkpoint"
            task.state, task.reason = FAILED, f"{stuck}: {task.why(self.backend)}"
        else:
            task.state = WAITING
            task.restarts += 1


def meta_of(folder: Path) -> dict[str, Any]:
    """What a run says about itself; empty if there is none. A worker that begins a run anew removes
    the old one, at any moment."""
    try:
        return Run(folder).meta() if is_run(folder) else {}
    except RunError:
        return {}


def check_over(tasks: Sequence[Task]) -> None:
    """RunError that names the tasks that failed."""
    failed = [task for task in tasks if task.state == FAILED]
    if failed:
        lines = "\n".join(f"  {task.label or task.folder.name}: {task.reason}" for task in failed)
        raise RunError(f"{len(failed)} of {len(tasks)} runs failed:\n{lines}")
