"""Runs that grow, are rewound and end, without training."""

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
