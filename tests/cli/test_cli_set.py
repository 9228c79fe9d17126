"""`gsolve set` against a real training process."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from tests.cli.conftest import Gsolve

GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]
TRAIN = [
    *("train", "CartPole-v1:ppo", "--max-env-steps", "10_000_000", "--eval-freq-epochs", "null"),
    *("--early-stop-on-eval-threshold", "false", "--run-name", "long", "-q"),
]


@pytest.fixture
def training(here: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*GSOLVE, *TRAIN], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    metrics = Path("runs/long/metrics.jsonl")
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    process.kill()
    process.communicate()


def phase_of(path: str) -> str | None:
    return (get_run(Run(Path(path))).activity or {}).get("phase")


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_running_training_is_changed(training: subprocess.Popen[bytes], gsolve: Gsolve) -> None:
    answer = gsolve.json("set long policy_lr=1e-4")
    assert answer["applied"]
    assert answer["changed"] == {"policy_lr": 1e-4}

    assert "n_envs cannot change while a run trains" in gsolve("set long n_envs=2", code=2)
    assert "policy_lr" in gsolve("set long policy_lr=-1", code=2)
    assert "expected FIELD=VALUE" in gsolve("set long policy_lr", code=2)

    assert "9,000,000 env steps" in gsolve("set long gamma=0.5 --at 9e6")
    listed = gsolve.json("set long")
    assert [edit["changed"]["policy_lr"][1] for edit in listed["edits"]] == [1e-4]
    assert listed["requests"][0]["changes"] == {"gamma": 0.5}

    gsolve("set long --pause")
    wait_for(lambda: phase_of("runs/long") == "paused")
    size = Path("runs/long/metrics.jsonl").stat().st_size
    time.sleep(0.3)
    assert Path("runs/long/metrics.jsonl").stat().st_size == size
    gsolve("set long --pause --go-on", code=2)
    gsolve("set long --go-on")
    wait_for(lambda: Path("runs/long/metrics.jsonl").stat().st_size > size)
    wait_for(lambda: phase_of("runs/long") is None)

    training.kill()
    training.wait()
    assert "not training here" in gsolve("set long --pause", code=2)
    assert "gsolve train --resume long --gamma 0.5" in gsolve("set long gamma=0.5", code=2)
