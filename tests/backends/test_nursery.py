"""Workers that are forked from a process with the imports done: like processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.backends.nursery import CAN_FORK, Nursery
from gymnasium_solver.runs import machine
from tests.experiments.real_runs import wait_for

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="this system has no safe fork")

WORKER = """
import json, os, sys, time
import imported_once
what = sys.argv[1]
print(json.dumps({
    "name": __name__, "argv": sys.argv[1:], "cpus": os.environ.get("GSOLVE_CPUS"),
    "stdin": sys.stdin.read(), "imported_by": imported_once.PID, "pid": os.getpid(),
}), flush=True)
if what == "sleep":
    time.sleep(60)
sys.exit(int(what))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "a_worker.py").write_text(WORKER)
    (tmp_path / "imported_once.py").write_text("import os\nPID = os.getpid()\n")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    folder = tmp_path / "runs" / "one"
    yield folder
    local.kill(folder)


@pytest.fixture
def nursery(folder: Path) -> Iterator[Nursery]:
    with Nursery(["imported_once", "no_such_module"]) as nursery:
        yield nursery


def worker(what: str) -> list[str]:
    return [sys.executable, "-m", "a_worker", what]


def test_a_worker_is_forked_with_its_folder_environment_and_exit_code(
    folder: Path, nursery: Nursery
) -> None:
    job = local.start(worker("3"), folder, cpus=7, nursery=nursery)
    assert local.wait(folder, 10)
    said = json.loads(local.tail(folder)[-1])
    assert said["pid"] == job.pid
    assert said["imported_by"] not in (job.pid, os.getpid())  # by the nursery, before the fork
    assert (said["name"], said["argv"], said["cpus"]) == ("__main__", ["3"], "7")
    assert said["stdin"] == ""
    assert local.find(folder) == job
    wait_for(lambda: job.exit_code is not None, 5)
    assert job.exit_code == 3


def test_a_worker_outlives_the_nursery_and_can_be_stopped(folder: Path, nursery: Nursery) -> None:
    job = local.start(worker("sleep"), folder, nursery=nursery)
    assert os.getsid(job.pid) == job.pid != os.getsid(0)
    nursery.close()
    assert job.is_running
    assert local.stop(folder)
    assert local.wait(folder, 5)


def test_a_second_worker_is_refused_while_one_runs(folder: Path, nursery: Nursery) -> None:
    first = local.start(worker("sleep"), folder, nursery=nursery)
    with pytest.raises(local.BackendError, match=f"process {first.pid}"):
        local.start(worker("0"), folder, nursery=nursery)
    assert local.find(folder) == first


def test_the_exit_code_of_a_killed_worker_is_its_signal(folder: Path, nursery: Nursery) -> None:
    job = local.start(worker("sleep"), folder, nursery=nursery)
    os.kill(job.pid, signal.SIGKILL)
    assert local.wait(folder, 5)
    wait_for(lambda: job.exit_code is not None, 5)
    assert job.exit_code == -signal.SIGKILL


def test_a_new_process_is_started_if_the_nursery_has_died(folder: Path, nursery: Nursery) -> None:
    assert nursery._process is not None
    nursery._process.kill()
    nursery._process.wait()
    job = local.start(worker("0"), folder, nursery=nursery)
    assert local.wait(folder, 10)
    said = json.loads(local.tail(folder)[-1])
    assert said["imported_by"] == said["pid"] == job.pid


def test_other_programs_are_started_as_before(folder: Path, nursery: Nursery) -> None:
    job = local.start([sys.executable, "-S", "-c", "print('plain')"], folder, nursery=nursery)
    assert local.wait(folder, 10)
    assert local.tail(folder) == ["plain"]
    assert job.exit_code == 0


def test_it_ends_when_its_owner_is_killed(folder: Path) -> None:
    code = (
        "import os\nfrom gymnasium_solver.backends.nursery import Nursery\n"
        "n = Nursery(['json'])\nprint(n._process.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wait_for(lambda: not machine.is_alive(int(done.stdout)), 10)
