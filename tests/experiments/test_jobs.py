"""`gsolve jobs` and `--detach`: what runs in the background."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.experiment import create
from gymnasium_solver.experiments.jobs import cancel, find_job, list_jobs, logs
from gymnasium_solver.training.prepare import load_config

SLEEP = [sys.executable, "-S", "-c", "import time; print('hello', flush=True); time.sleep(60)"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for path in (tmp_path / "one", tmp_path / "two", tmp_path / "experiments" / "e"):
        local.kill(path)


def test_jobs_are_listed_shown_and_cancelled(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--runs-dir", str(root)]
    assert main(["jobs", *where]) == 0
    assert "no jobs running" in capsys.readouterr().out
    local.start(SLEEP, root / "one")
    local.start([sys.executable, "-S", "-c", "pass"], root / "two")
    assert local.wait(root / "two", 20)
    assert [(job.name, job.status) for job in list_jobs(root)] == [
        ("two", "ended"), ("one", "running")
    ]  # fmt: skip
    assert main(["jobs", "--json", *where]) == 0
    assert [job["name"] for job in json.loads(capsys.readouterr().out)] == ["one"]
    assert logs(find_job("one", root)) == ["hello"]
    assert main(["jobs", "cancel", "on", *where]) == 0
    assert "asked to save and end" in capsys.readouterr().out
    assert local.wait(root / "one", 20)
    assert main(["jobs", "cancel", "one", *where]) == 1
    with pytest.raises(RunError, match="there is no job 'three'"):
        find_job("three", root)
    assert main(["jobs", "logs", *where]) == 2
    assert main(["jobs", "stop", "one", *where]) == 2


def test_cancelling_an_experiment_without_coordinator_stops_its_runs(root: Path) -> None:
    config = load_config("CartPole-v1:ppo")
    made = create([("a", config)], [1], root, name="e")
    folder = made.folders()[0]
    local.start([sys.executable, "-S", "-c", "pass"], made.path)
    assert local.wait(made.path, 20)
    local.start(SLEEP, folder)
    assert cancel(find_job("e", root))
    assert local.wait(folder, 20)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--backend", "slrm"], "Did you mean slurm"),
        (["--resources", "cpus=2", "--seeds", "2"], "the rest is for clusters"),
        (["--sbatch", "x=1", "--backend", "ray"], "--sbatch is for --backend slurm"),
    ],
)
def test_wrong_command_lines(
    words: list[str], text: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "CartPole-v1:ppo", *words, "--runs-dir", str(root)]) == 2
    assert text in capsys.readouterr().err
    assert not (root / "experiments").exists()
