"""Detached processes: found again, never mistaken for another, stopped, never two in a folder."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.backends.local import ALREADY_RUNNING, LAUNCH, newest_checkpoint

SLEEP = [sys.executable, "-S", "-c", "import time; print('here', flush=True); time.sleep(60)"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a" / "run"
    yield folder
    local.kill(folder)


def quick(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_start_status_stop(folder: Path) -> None:
    assert local.find(folder) is None
    assert not local.is_running(folder)
    job = local.start(SLEEP, folder, cpus=1)
    assert job.is_running
    assert job.argv == SLEEP
    assert job.starts == 1
    assert local.find(folder) == job
    assert os.getsid(job.pid) == job.pid != os.getsid(0)
    assert local.stop(folder, kill_after_s=5)
    assert local.wait(folder, 5)
    assert job.exit_code == -signal.SIGTERM
    assert not local.stop(folder)


def test_output_and_environment(folder: Path) -> None:
    code = "import os, sys; print(os.environ['GSOLVE_CPUS'], sys.stdin.read() == ''); sys.exit(3)"
    job = local.start(quick(code), folder, cpus=7)
    assert local.wait(folder, 10)
    assert local.tail(folder) == ["7 True"]
    assert job.exit_code == 3


def test_a_second_start_is_refused_while_one_runs(folder: Path) -> None:
    first = local.start(SLEEP, folder)
    with pytest.raises(local.BackendError, match=f"process {first.pid}"):
        local.start(SLEEP, folder)
    assert local.find(folder) == first
    assert first.is_running
    words = [*LAUNCH, "claim", str(folder), "0", *SLEEP]
    assert subprocess.run(words, capture_output=True).returncode == ALREADY_RUNNING


def test_a_reused_process_id_is_not_the_job(folder: Path) -> None:
    job = local.start(SLEEP, folder)
    record = json.loads((folder / local.JOB).read_text())
    record["pid_started"] -= 100.0
    (folder / local.JOB).write_text(json.dumps(record))
    assert not local.is_running(folder)
    assert not local.stop(folder)  # nobody else's process gets a signal
    local.kill(folder)
    assert job.is_running
    os.killpg(job.pid, signal.SIGKILL)
    assert local.wait(folder, 5)


def test_a_job_outlives_its_starter(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gymnasium_solver.backends import local\n"
        f"local.start({SLEEP!r}, Path({str(folder)!r}))\nimport os; os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    job = local.find(folder)
    assert job is not None
    assert job.is_running
    assert local.stop(folder)
    assert local.wait(folder, 5)


def test_restarts_from_the_same_checkpoint_are_counted(folder: Path) -> None:
    def run_once() -> tuple[int, int]:
        job = local.start(quick("pass"), folder)
        assert local.wait(folder, 10)
        return job.starts, job.stuck

    assert [run_once(), run_once()] == [(1, 0), (2, 1)]
    for steps, is_done in ((100, True), (200, False)):
        (folder / "checkpoints" / str(steps)).mkdir(parents=True)
        if is_done:
            (folder / "checkpoints" / str(steps) / "done").touch()
    assert newest_checkpoint(folder) == 100
    assert [run_once(), run_once()] == [(3, 0), (4, 1)]


def test_processes_of_a_killed_job_are_ended_by_the_next_start(folder: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    job = local.start(quick(code), folder)
    deadline = time.monotonic() + 20
    while not local.tail(folder):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = int(local.tail(folder)[0])
    os.kill(job.pid, signal.SIGKILL)
    assert local.wait(folder, 5)
    assert job.exit_code == -signal.SIGKILL
    from gymnasium_solver.runs import machine

    assert machine.is_alive(child)
    local.start(quick("pass"), folder)
    deadline = time.monotonic() + 5
    while machine.is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_that_does_not_exist(folder: Path) -> None:
    job = local.start(["/no/such/program"], folder)
    assert local.wait(folder, 10)
    assert job.exit_code == 127
    assert "No such file" in local.tail(folder)[-1]
