"""Real trainings in a pool, killed with kill -9: nothing lost, nothing twice, the same weights."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.experiments.experiment import FOLDER, Experiment, load
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run

CONFIG = """
env_id: CartPole-v1
ppo:
  n_envs: 3
  n_steps: 16
  batch_size: 24
  n_epochs: 1
  hidden_dims: [8]
  max_env_steps: 2400
  checkpoint_freq_epochs: 8
  eval_freq_epochs: 24
  eval_episodes: 2
  early_stop_on_eval_threshold: false
"""
SEEDS = (1, 2)


def command(root: Path) -> list[str]:
    words = ["train", str(root / "tiny.yaml"), "--seeds", "1,2", "--jobs", "2", "--quiet"]
    return local.gsolve(*words, "--experiment", "e", "--runs-dir", str(root / "runs"))


def weights(experiment: Experiment) -> dict[int, str]:
    """The hash of the last weights of every seed."""
    found = {}
    for member in experiment.members:
        checkpoints = experiment.folder(member) / "checkpoints"
        data = (checkpoints / "last").resolve().joinpath("model.safetensors").read_bytes()
        found[member.seed] = hashlib.sha256(data).hexdigest()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    root = tmp_path_factory.mktemp("whole")
    (root / "tiny.yaml").write_text(CONFIG)
    subprocess.run(command(root), check=True, capture_output=True, timeout=300)
    return weights(load(root / "runs" / FOLDER / "e"))


def kill_and_resume(root: Path, rng: random.Random, victims: str, kills: int) -> Experiment:
    """Run the experiment, kill at random moments, and start it again until it is done."""
    (root / "tiny.yaml").write_text(CONFIG)
    path = root / "runs" / FOLDER / "e"
    for _ in range(kills):
        process = subprocess.Popen(command(root), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        moment = time.monotonic() + rng.uniform(0.2, 6.0)
        while process.poll() is None and time.monotonic() < moment:
            time.sleep(0.02)
        if victims in ("worker", "both"):
            for job in jobs(path):
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
    subprocess.run(command(root), check=True, capture_output=True, timeout=300)
    return load(path)


def jobs(path: Path) -> list[local.Job]:
    if not (path / "experiment.yaml").exists():
        return []
    return [job for folder in load(path).folders() if (job := local.find(folder)) is not None]


def check(experiment: Experiment, expected: dict[int, str]) -> None:
    assert weights(experiment) == expected
    runs = [p for p in experiment.root.iterdir() if (p / "meta.json").exists() and p.name[0] != "@"]
    assert sorted(run.name for run in runs) == sorted(m.run for m in experiment.members)
    for member in experiment.members:
        run = Run(experiment.folder(member))
        assert run.meta()["status"] == "finished"
        steps = [row["env_steps"] for row in read_jsonl(run.metrics_path)]
        assert steps == sorted(set(steps)), "no row is lost or written twice"
        assert steps[-1] == 2400
        tests = [e for e in read_jsonl(run.events_path) if e.get("stage") == "test"]
        assert len({json.dumps(e.get("greedy")) for e in tests}) == len(tests)
        assert not local.is_running(run.path)


@pytest.mark.parametrize("victims", [pytest.param("coordinator", marks=pytest.mark.slow), "both"])
def test_killed_once(victims: str, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    rng = random.Random(f"{victims}-once")
    check(kill_and_resume(tmp_path, rng, victims, 1), undisturbed)


@pytest.mark.services
@pytest.mark.parametrize("moment", range(20))
@pytest.mark.parametrize("victims", ["coordinator", "worker", "both"])
def test_killed_at_random_moments(
    victims: str, moment: int, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    rng = random.Random(f"{victims}-{moment}")
    check(kill_and_resume(tmp_path, rng, victims, 1 + moment % 2), undisturbed)


@pytest.mark.services
def test_sigterm_saves_and_exits_with_75(tmp_path: Path, undisturbed: dict[int, str]) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    path = tmp_path / "runs" / FOLDER / "e"
    process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(job.is_running for job in jobs(path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    assert not any(job.is_running for job in jobs(path))
    words = ["train", "--resume", "e", "--quiet", "--runs-dir", str(tmp_path / "runs")]
    subprocess.run(local.gsolve(*words), check=True, capture_output=True, timeout=300)
    check(load(path), undisturbed)
