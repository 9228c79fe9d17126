"""Runs that grow, are rewound and end, without training; followers that are killed meanwhile."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.run import Run, _rows_until

CONFIG = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 1}
YAML = "env_id: CartPole-v1\nalgo_id: ppo\nvariant: ppo\nseed: 1\npolicy_lr: 0.001\nspec: {}\n"


def new_run(root: Path, name: str = "tracked") -> Run:
    run = Run.create(YAML, CONFIG, root, name=name)
    run.update_meta(status="running")
    return run


def grow(run: Run, n: int, first: int, tag: float = 0.0) -> None:
    """Log `n` rows from row number `first` on; every tenth has another metric, every seventh is
    followed by an event."""
    for i in range(first, first + n):
        row: dict[str, Any] = {"env_steps": 10 * (i + 1), "epoch": i, "wall_s": 0.1 * i}
        row["train/roll/ep_rew/mean"] = i + tag
        if i % 10 == 9:
            row["train/opt/loss/policy"] = -float(i)
            row["train/roll/actions/hist/00"], row["train/roll/actions/hist/01"] = 0.25, 0.75
        if i % 5 == 4:
            row["val/roll/ep_rew/mean"] = None
        run.log_metrics(row)
        if i % 7 == 6:
            name = "kl_high" if i % 2 else "kl_low"
            run.log_event("alert", env_steps=10 * (i + 1), name=name, text=f"alert {i}")


def end(run: Run) -> None:
    run.update_meta(status="finished", stop_reason="max_env_steps", env_steps=1)


def go_back(run: Run, env_steps: int) -> None:
    """What a resume does to the files that trackers read."""
    run.close()
    for path in (run.metrics_path, run.events_path):
        write_atomic(path, _rows_until(path, env_steps))


def add_checkpoint(run: Run, env_steps: int, *names: str) -> None:
    folder = run.checkpoints_dir / str(env_steps)
    folder.mkdir()
    for name in ("done", "model.safetensors", *names):
        (folder / name).write_bytes(b"w")
    run.log_event("checkpoint", env_steps=env_steps, epoch=9, reason="best")


def follow_with_kills(run: Run, n_kills: int, *words: str) -> None:
    """`gsolve track --follow` as a real process, killed again and again while the run grows and is
    rewound; then once more until its end."""
    argv = [sys.executable, "-m", "gymnasium_solver", "track", str(run.path), *words, "--follow"]
    state = run.path / f"trackers/{words[1]}.json"
    rng, rows = random.Random(words[1]), 5
    grow(run, rows, 0)
    for kill in range(n_kills):
        follower = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while kill == 0 and not state.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        for _ in range(20):
            grow(run, 10, rows)
            rows += 10
            time.sleep(0.15 * rng.random() if n_kills > 3 else 0.01 * rng.random())
        if kill % 6 == 1:
            rows //= 2
            go_back(run, 10 * rows)
            grow(run, 10, rows, tag=0.5)
            rows += 10
            time.sleep(1.2 * rng.random())
        follower.send_signal(signal.SIGKILL)
        follower.wait()
    end(run)
    subprocess.run(argv, check=True, timeout=120, stdout=subprocess.DEVNULL)
