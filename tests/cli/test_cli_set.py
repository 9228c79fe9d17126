"""`gsolve set` against a real training process."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run

GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]
TRAIN = [
    *("train", "CartPole-v1:ppo", "--max-env-steps", "10_000_000", "--eval-freq-epochs", "null"),
    *("--early-stop-on-eval-threshold", "false", "--runs-dir", "runs", "--run-name", "long", "-q"),
]


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.chdir(tmp_path)
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


def test_a_running_training_is_changed(training: subprocess.Popen[bytes], capsys: Any) -> None:
    assert main(["set", "long", "policy_lr=1e-4", "--runs-dir", "runs", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["applied"]
    assert answer["changed"] == {"policy_lr": 1e-4}

    assert main(["set", "long", "n_envs=2", "--runs-dir", "runs"]) == 2
    assert "n_envs cannot change while a run trains" in capsys.readouterr().err
    assert main(["set", "long", "policy_lr=-1", "--runs-dir", "runs"]) == 2
    assert "policy_lr" in capsys.readouterr().err
    assert main(["set", "long", "policy_lr", "--runs-dir", "runs"]) == 2
    assert "expected FIELD=VALUE" in capsys.readouterr().err

    assert main(["set", "long", "gamma=0.5", "--at", "9e6", "--runs-dir", "runs"]) == 0
    assert "9,000,000 env steps" in capsys.readouterr().out
    assert main(["set", "long", "--runs-dir", "runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [edit["changed"]["policy_lr"][1] for edit in listed["edits"]] == [1e-4]
    assert listed["requests"][0]["changes"] == {"gamma": 0.5}

    assert main(["set", "long", "--pause", "--runs-dir", "runs"]) == 0
    wait_for(lambda: phase_of("runs/long") == "paused")
    size = Path("runs/long/metrics.jsonl").stat().st_size
    time.sleep(0.3)
    assert Path("runs/long/metrics.jsonl").stat().st_size == size
    assert main(["set", "long", "--pause", "--go-on", "--runs-dir", "runs"]) == 2
    assert main(["set", "long", "--go-on", "--runs-dir", "runs"]) == 0
    wait_for(lambda: Path("runs/long/metrics.jsonl").stat().st_size > size)
    wait_for(lambda: phase_of("runs/long") is None)

    training.kill()
    training.wait()
    assert main(["set", "long", "--pause", "--runs-dir", "runs"]) == 2
    assert "not training here" in capsys.readouterr().err
    assert main(["set", "long", "gamma=0.5", "--runs-dir", "runs"]) == 2
    assert "gsolve train --resume long --gamma 0.5" in capsys.readouterr().err
