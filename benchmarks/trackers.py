"""What a tracker costs a training run: env steps per second with and without each.

    .venv/bin/python -m benchmarks.trackers --repeats 5

All sides take turns in every repeat, and each ratio is that of one repeat. W&B writes offline.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run

SIDES = ("none", "csv", "tensorboard", "wandb")
FIELDS = ("--early-stop-on-eval-threshold", "null", "--eval-freq-epochs", "null", "--quiet")


def speed(config: str, side: str, steps: int, root: Path, name: str) -> float:
    """Env steps per second of one training, by the run's own clock."""
    words = ["train", config, "--max-env-steps", str(steps), "--seed", "1", *FIELDS]
    words += ["--test-episodes", "1", "--runs-dir", str(root), "--run-name", name]
    words += [] if side == "none" else ["--track", side]
    env = {**os.environ, "WANDB_MODE": "offline"}
    argv = [sys.executable, "-m", "gymnasium_solver", *words]
    subprocess.run(argv, check=True, env=env, stdout=subprocess.DEVNULL)
    run = get_run(Run(root / name))
    return run.env_steps / run.wall_s


def sides_here() -> list[str]:
    from importlib.util import find_spec

    return [side for side in SIDES if side != "wandb" or find_spec("wandb") is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="CartPole-v1:ppo")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: dict[str, list[float]] = {side: [] for side in sides_here()}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(args.repeats):
            for side in found:
                name = f"{side}-{repeat}"
                found[side].append(speed(args.config, side, args.steps, Path(folder), name))
    rows = {
        side: {
            "env_steps_per_s": statistics.median(speeds),
            "ratio": statistics.median(a / b for a, b in zip(speeds, found["none"], strict=True)),
            "all": speeds,
        }
        for side, speeds in found.items()
    }
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for side, row in rows.items():
        print(f"{side:<12} {row['env_steps_per_s']:>10,.0f} env steps/s   {row['ratio']:.3f}")


if __name__ == "__main__":
    main()
