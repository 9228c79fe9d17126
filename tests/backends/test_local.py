"""Detached processes: found again, never mistaken for another, stopped, never two in a folder."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.backends.local import ALREADY_RUNNING, LAUNCH, newest_checkpoint
from gymnasium_solver.backends.resources import check_backend, local_gpus
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.pool import Pool
from gymnasium_solver.runs import machine
from tests.experiments.real_runs import wait_for

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
    wait_for(lambda: local.tail(folder), 20)
    child = int(local.tail(folder)[0])
    os.kill(job.pid, signal.SIGKILL)
    assert local.wait(folder, 5)
    assert job.exit_code == -signal.SIGKILL
    assert machine.is_alive(child)
    local.start(quick("pass"), folder)
    wait_for(lambda: not machine.is_alive(child), 5)


def test_a_command_that_does_not_exist(folder: Path) -> None:
    job = local.start(["/no/such/program"], folder)
    assert local.wait(folder, 10)
    assert job.exit_code == 127
    assert "No such file" in local.tail(folder)[-1]


# -- GPUs ------------------------------------------------------------------------------------------


class Cards:
    """Jobs that run until they are taken out, in place of processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
        self.given: dict[Path, str | None] = {}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr(local, "start", self.start)
        monkeypatch.setattr(local, "find", self.find)

    def start(self, argv: Any, folder: Path, *, env: dict[str, str], **_: Any) -> None:
        self.given[folder] = env.get("CUDA_VISIBLE_DEVICES")

    def find(self, folder: Path) -> Any:
        if folder not in self.given:
            return None
        return SimpleNamespace(is_running=True, gpus=self.given[folder])


def test_a_job_records_its_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    backend = local.LocalBackend()
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    backend.start(quick(code), folder)
    assert local.wait(folder, 30)
    assert local.tail(folder) == ["0"]
    job = local.find(folder)
    assert job is not None
    assert job.gpus == "0"


def test_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(monkeypatch, "2, 5")
    backend = local.LocalBackend()
    folders = [Path(f"run{i}") for i in range(4)]
    for folder in folders:
        backend.start(["gsolve", "train"], folder)
    assert [cards.given[folder] for folder in folders] == ["2", "5", "2", "5"]
    del cards.given[folders[1]], cards.given[folders[3]]  # they have ended
    backend.start(["gsolve", "train"], folders[1])
    assert cards.given[folders[1]] == "5"
    anew = local.LocalBackend()  # another coordinator attaches to what runs
    assert anew.is_running(folders[0])
    assert anew.is_running(folders[2])
    anew.start(["gsolve", "train"], folders[3])
    assert cards.given[folders[3]] == "5"


def test_a_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(monkeypatch, "0,1")
    backend = local.LocalBackend(gpus=0.25)
    assert Pool(100, backend=backend).jobs == backend.most_jobs == 8
    for i in range(8):
        backend.start(["gsolve"], Path(f"run{i}"))
    assert sorted(map(str, cards.given.values())) == ["0"] * 4 + ["1"] * 4
    two = local.LocalBackend(gpus=2)
    assert two.most_jobs == 1
    two.start(["gsolve"], Path("two"))
    assert cards.given[Path("two")] == "0,1"
    local.LocalBackend(gpus=0).start(["gsolve"], Path("none"))
    assert cards.given[Path("none")] == ""
    with pytest.raises(local.BackendError, match="there are 2 here"):
        local.LocalBackend(gpus=3)


def test_one_gpu_or_a_named_one_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cards = Cards(monkeypatch, "0")
    local.LocalBackend().start(["gsolve"], Path("one"))
    assert cards.given[Path("one")] is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    config = tmp_path / "a.yaml"
    config.write_text("env_id: x\ndevice: cuda:1\n")
    local.LocalBackend().start(["gsolve", "train", str(config)], Path("named"))
    assert cards.given[Path("named")] is None
    local.LocalBackend().start(["gsolve", "train", "--device", "cuda:1"], Path("flag"))
    assert cards.given[Path("flag")] is None


@pytest.mark.parametrize(
    ("backend", "text", "message"),
    [
        ("local", "cpus=2", "gpus=0.25 for four runs"), ("slurm", "gpus=0.5", "whole GPUs only"),
        ("modal", "gpus=0.25", "whole GPUs only"),
    ],
)  # fmt: skip
def test_shares_that_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, backend: str, text: str, message: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sbatch")
    with pytest.raises(ConfigError, match=message):
        check_backend(backend, sbatch=None, resources=text)
    assert check_backend("local", sbatch=None, resources="gpus=0.25") == "local"
    assert check_backend("ray", sbatch=None, resources="cpus=1 gpus=0.25") == "ray"
    assert local_gpus("gpus=0.25") == 0.25
    with pytest.raises(ConfigError, match="a whole number, or a share"):
        local_gpus("gpus=1.5")
