"""The pool: what it does with a folder depends on what is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.pool import FAILED, FINISHED, RUNNING, STOPPED, Pool, Task
from gymnasium_solver.runs.run import Run


@pytest.fixture(autouse=True)
def _three_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "cpu_count", lambda: 3)


IDENTITY = {"env_id": "CartPole-v1", "algo_id": "ppo", "seed": 1}


class Script:
    """A backend whose jobs end at once; `ends` has the status each start leaves in the folder."""

    def __init__(self, *ends: str) -> None:
        self.ends, self.log = list(ends), list[str]()
        self.alive: set[Path] = set()
        self.code: int | None = None

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> None:
        assert argv[3:5] == ["train", "x"]
        assert argv[argv.index("--if-exists") + 1] == "resume"
        self.log.append(f"{folder.name}:{cpus}")
        end = self.ends.pop(0)
        if end == "running":
            self.alive.add(folder)
        elif end != "nothing":
            set_status(folder, end)

    def is_running(self, folder: Path) -> bool:
        return folder in self.alive

    def exit_code(self, folder: Path) -> int | None:
        return self.code

    def stuck(self, folder: Path) -> int:
        return len(self.log)

    def stop(self, folder: Path) -> None:
        self.alive.discard(folder)

    def tail(self, folder: Path, lines: int = 20) -> list[str]:
        return ["gsolve train: no such config", "more"]


def set_status(folder: Path, status: str) -> None:
    if not folder.exists():
        Run.create("env_id: CartPole-v1\n", IDENTITY, folder.parent, name=folder.name)
    Run(folder).update_meta(status=status, pid=2**30)  # no process has this number


def finish(backend: Script, folder: Path, **options: Any) -> Task:
    pool = Pool(1, backend=backend, **options)
    task = pool.add(Task(folder, ("x",)))
    pool.run()
    return task


@pytest.mark.parametrize("before", [None, "running", "interrupted", "created"])
def test_what_is_not_finished_is_started_once(tmp_path: Path, before: str | None) -> None:
    if before is not None:
        set_status(tmp_path / "a", before)  # by a process that is gone
    backend = Script("finished")
    assert finish(backend, tmp_path / "a").state == FINISHED
    assert backend.log == ["a:3"]


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_what_is_over_is_not_started(tmp_path: Path, status: str) -> None:
    set_status(tmp_path / "a", status)
    backend = Script()
    assert finish(backend, tmp_path / "a").state == status
    assert backend.log == []


def test_what_failed_is_retried_if_asked(tmp_path: Path) -> None:
    set_status(tmp_path / "a", "failed")
    assert finish(Script("finished"), tmp_path / "a", retry_failed=True).state == FINISHED


def test_what_runs_is_attached_to(tmp_path: Path) -> None:
    backend = Script()
    backend.alive.add(tmp_path / "a")
    pool = Pool(1, backend=backend)
    task = pool.add(Task(tmp_path / "a", ("x",)))
    assert (task.state, pool.step()) == (RUNNING, [])
    set_status(tmp_path / "a", "finished")
    assert pool.step() == []  # until the process has ended
    backend.alive.clear()
    assert pool.step() == [task]
    assert task.state == FINISHED


def test_killed_and_preempted_runs_are_resumed(tmp_path: Path) -> None:
    backend = Script("running", "interrupted", "nothing", "finished")
    pool = Pool(1, backend=backend)
    task = pool.add(Task(tmp_path / "a", ("x",)))
    pool.step()
    backend.alive.clear()
    pool.run()
    assert (task.state, task.restarts, len(backend.log)) == (FINISHED, 3, 4)


def test_restarts_are_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_RESTARTS", 2)
    task = finish(Script(*["nothing"] * 9), tmp_path / "a")
    assert task.state == FAILED
    assert task.reason == "ended 3 times without a new checkpoint: gsolve train: no such config"


def test_a_wrong_command_is_not_retried(tmp_path: Path) -> None:
    backend = Script("nothing")
    backend.code = 2
    task = finish(backend, tmp_path / "a")
    assert (task.state, task.reason) == (FAILED, "gsolve train: no such config")
    with pytest.raises(RunError, match="1 of 1 runs failed:\n  a: gsolve train: no such"):
        pools.check_over([task])


def test_at_most_so_many_at_a_time_and_threads_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "cpu_count", lambda: 9)
    backend = Script(*["running"] * 3)
    pool = Pool(2, backend=backend)
    tasks = [pool.add(Task(tmp_path / name, ("x",))) for name in "abc"]
    pool.step()
    assert backend.log == ["a:4", "b:4"]
    assert len(pool.running()) == 2
    set_status(tmp_path / "a", "finished")
    backend.alive.discard(tmp_path / "a")
    assert pool.step() == [tasks[0], tasks[2]]
    assert backend.log[-1] == "c:4"


def test_stop(tmp_path: Path) -> None:
    backend = Script("running")
    pool = Pool(1, backend=backend)
    first, second = (pool.add(Task(tmp_path / name, ("x",))) for name in "ab")
    pool.step()
    pool.stop_all()
    assert (first.state, second.state) == (STOPPED, STOPPED)
    assert len(backend.log) == 1


def test_an_interrupt_stops_the_tasks(tmp_path: Path) -> None:
    backend = Script("running")
    pool = Pool(1, backend=backend)
    task = pool.add(Task(tmp_path / "a", ("x",)))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(on_poll=interrupt)
    assert task.state == STOPPED
