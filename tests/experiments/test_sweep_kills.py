"""Real sweeps whose coordinator and trials are killed by SIGKILL come to the same result."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.experiments.search.plan import prepare, read_plan
from gymnasium_solver.experiments.search.sweep_folder import Sweep, create_sweep
from gymnasium_solver.runs.files import read_json
from gymnasium_solver.runs.jsonl import read_jsonl

pytest.importorskip("optuna")

TINY = {"n_envs": 2, "n_steps": 64, "batch_size": 64, "hidden_dims": [8], "eval_episodes": 2,
        "test_episodes": 2, "checkpoint_freq_epochs": 2}  # fmt: skip


def create(root: Path, trials: int, steps: int, **changes: Any) -> Sweep:
    data = {"config": "CartPole-v1:ppo", "trials": trials, "jobs": 2, "sampler": "tpe",
            "params": {"policy_lr": "log:1e-4..1e-2", "n_epochs": "1..4"},
            "set": {**TINY, "max_env_steps": steps}, "metric": {"name": "score"},
            "final": {"top": 0}, **changes}  # fmt: skip
    return create_sweep(prepare(read_plan(data, "test")), root)


def start(sweep: Sweep) -> "subprocess.Popen[bytes]":
    argv = [sys.executable, "-m", "gymnasium_solver", "sweep", "--resume", str(sweep.path), "-q"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(sweep: Sweep) -> None:
    done = start(sweep)
    _, err = done.communicate(timeout=600)
    assert done.returncode == 0, err.decode()


def running_trials(sweep: Sweep) -> list[int]:
    """Process ids of the trainings that run now."""
    found = []
    for path in sweep.path.rglob("job.json"):
        with suppress(Exception):  # it is being written
            job = read_json(path, "")
            os.kill(job["pid"], 0)
            found.append(int(job["pid"]))
    return found


def content(sweep: Sweep) -> dict[str, Any]:
    """Everything that must not depend on kills: trials, weights, and rows without repetition."""
    runs = {}
    for path in sorted(sweep.path.rglob("meta.json")):
        steps = [row["env_steps"] for row in read_jsonl(path.parent / "metrics.jsonl")]
        assert steps == sorted(set(steps)), "rows are logged once"
        weights = path.parent / "checkpoints" / "last" / "model.safetensors"
        runs[str(path.parent.relative_to(sweep.path))] = (weights.read_bytes(), len(steps))
    trials = [(t.number, t.latents, t.state, t.value) for t in sweep.trials()]
    result = json.loads((sweep.path / "result.json").read_text())
    return {"runs": runs, "trials": trials, "result": result}


def kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def disturb(sweep: Sweep, kind: str, rng: random.Random, kills: int, longest_s: float) -> int:
    """Kill so many times at random moments, with a new coordinator each time; returns the kills."""
    done = 0
    while done < kills:
        process = start(sweep)
        time.sleep(rng.uniform(0.5, longest_s))
        if process.poll() is not None:  # it has finished
            break
        trials = running_trials(sweep) if kind in ("trial", "both") else []
        if kind == "trial":
            done += kill(rng.choice(trials)) if trials else 0
            process.terminate()
        else:
            if trials:
                kill(rng.choice(trials))
            done += kill(process.pid)
        process.communicate()
    return done


@pytest.mark.slow
def test_killed_at_a_random_moment(tmp_path: Path) -> None:
    whole = create(tmp_path / "whole", 3, 1024)
    finish(whole)
    broken = create(tmp_path / "broken", 3, 1024)
    assert disturb(broken, "both", random.Random(), kills=2, longest_s=8.0) > 0
    finish(broken)
    assert content(broken) == content(whole)


@pytest.mark.services
@pytest.mark.parametrize("kind", ["coordinator", "trial", "both"])
def test_killed_at_20_random_moments(tmp_path: Path, kind: str) -> None:
    final = {"top": 1, "seeds": 2}
    whole = create(tmp_path / "whole", 6, 4096, final=final)
    finish(whole)
    rng, kills, rounds = random.Random(), 0, 0
    while kills < 20:
        broken = create(tmp_path / f"broken{rounds}", 6, 4096, final=final)
        kills += disturb(broken, kind, rng, 20 - kills, longest_s=15.0)
        finish(broken)
        assert content(broken) == content(whole)
        rounds += 1
