"""Real trainings in a pool, killed with kill -9: nothing lost, nothing twice, the same weights."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.experiments.experiment import load
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from tests.experiments.real_runs import BUDGET, command, folder_of, wait_for, weights

TWO = ("--seeds", "1,2", "--jobs", "2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    root = tmp_path_factory.mktemp("whole")
    subprocess.run(command(root, *TWO), check=True, capture_output=True, timeout=300)
    return weights(root)


def kill_and_resume(root: Path, rng: random.Random, victims: str, kills: int) -> None:
    """Run the experiment, kill at random moments, and start it again until it is done."""
    argv = command(root, *TWO)
    for _ in range(kills):
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        moment = time.monotonic() + rng.uniform(0.2, 6.0)
        while process.poll() is None and time.monotonic() < moment:
            time.sleep(0.02)
        if victims in ("worker", "both"):
            for job in jobs(root):
                if job.is_running and rng.random() < 0.7:
                    os.kill(job.pid, signal.SIGKILL)
        if victims in ("coordinator", "both"):
            process.kill()
        if victims == "worker":
            out, _ = process.communicate(timeout=300)
            assert process.returncode == 0, out.decode()
        process.wait(timeout=300)
        assert process.stdout is not None
        process.stdout.close()
    subprocess.run(argv, check=True, capture_output=True, timeout=300)


def jobs(root: Path) -> list[local.Job]:
    path = folder_of(root)
    folders = load(path).folders() if (path / "experiment.yaml").exists() else []
    return [job for folder in folders if (job := local.find(folder)) is not None]


def check(root: Path, expected: dict[int, str]) -> None:
    assert weights(root) == expected
    experiment = load(folder_of(root))
    runs = [p for p in experiment.root.iterdir() if (p / "meta.json").exists() and p.name[0] != "@"]
    assert sorted(run.name for run in runs) == sorted(m.run for m in experiment.members)
    for member in experiment.members:
        run = Run(experiment.folder(member))
        assert run.meta()["status"] == "finished"
        steps = [row["env_steps"] for row in read_jsonl(run.metrics_path)]
        assert steps == sorted(set(steps)), "no row is lost or written twice"
        assert steps[-1] == BUDGET
        tests = [e for e in read_jsonl(run.events_path) if e.get("stage") == "test"]
        assert len({json.dumps(e.get("greedy")) for e in tests}) == len(tests)
        assert not local.is_running(run.path)


@pytest.mark.parametrize("victims", [pytest.param("coordinator", marks=pytest.mark.slow), "both"])
def test_killed_once(victims: str, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    rng = random.Random(f"{victims}-once")
    kill_and_resume(tmp_path, rng, victims, 1)
    check(tmp_path, undisturbed)


@pytest.mark.services
@pytest.mark.parametrize("moment", range(20))
@pytest.mark.parametrize("victims", ["coordinator", "worker", "both"])
def test_killed_at_random_moments(
    victims: str, moment: int, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    rng = random.Random(f"{victims}-{moment}")
    kill_and_resume(tmp_path, rng, victims, 1 + moment % 2)
    check(tmp_path, undisturbed)


@pytest.mark.services
def test_sigterm_saves_and_exits_with_75(tmp_path: Path, undisturbed: dict[int, str]) -> None:
    process = subprocess.Popen(command(tmp_path, *TWO), stdout=subprocess.DEVNULL)
    wait_for(lambda: any(job.is_running for job in jobs(tmp_path)))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    assert not any(job.is_running for job in jobs(tmp_path))
    words = ["train", "--resume", "e", "--quiet", "--runs-dir", str(tmp_path / "runs")]
    subprocess.run(local.gsolve(*words), check=True, capture_output=True, timeout=300)
    check(tmp_path, undisturbed)
