"""What a tracker costs a training run: env steps per second with and without each.

    gsolve bench --only trackers
    .venv/bin/python -m benchmarks.trackers --repeats 5      # prints the table alone

All sides take turns in every repeat, and each ratio is that of one repeat. W&B writes offline.
"""

import argparse
import os
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gymnasium_solver.bench.harness import Options, say, spread, table, timed
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run

SIDES = ("none", "csv", "tensorboard", "wandb")
CONFIG = "CartPole-v1:ppo"
STEPS, QUICK_STEPS = 200_000, 5_000
FIELDS = ("--early-stop-on-eval-threshold", "null", "--eval-freq-epochs", "null", "--quiet")


def speed(side: str, steps: int, root: Path, name: str) -> tuple[float, float]:
    """Env steps per second of one training, by the run's own clock; cores that others used."""
    words = ["train", CONFIG, "--max-env-steps", str(steps), "--seed", "1", *FIELDS]
    words += ["--test-episodes", "1", "--runs-dir", str(root), "--run-name", name]
    words += [] if side == "none" else ["--track", side]
    argv = [sys.executable, "-m", "gymnasium_solver", *words]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = timed(argv, environment={"WANDB_MODE": "offline", "PYTHONPATH": paths})
    run = get_run(Run(root / name))
    return run.env_steps / run.wall_s, done.others_cores


def sides_here() -> list[str]:
    return [side for side in SIDES if side != "wandb" or find_spec("wandb") is not None]


def measure(options: Options) -> list[dict[str, Any]]:
    """One row per tracker."""
    steps = QUICK_STEPS if options.quick else STEPS
    rows: list[dict[str, Any]] = [
        {"tracker": side, "env_steps": steps, "env_steps_per_s": [], "others_cores": 0.0}
        for side in sides_here()
    ]
    say(f"trackers: {len(rows)} runs, {options.repeats} times each")
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for row in rows:
                name = f"{row['tracker']}-{repeat}"
                found, others = speed(row["tracker"], steps, Path(folder), name)
                row["env_steps_per_s"].append(found)
                row["others_cores"] = max(row["others_cores"], others)
    return rows


def sections(rows: list[dict[str, Any]]) -> list[str]:
    base = next(row["env_steps_per_s"] for row in rows if row["tracker"] == "none")
    cells = []
    for row in rows:
        ratios = [a / b for a, b in zip(row["env_steps_per_s"], base, strict=True)]
        shown = f"{statistics.median(ratios):.2f}"
        cells.append((row["tracker"], spread(row["env_steps_per_s"]), shown))
    return [
        "## Trackers",
        f"Speed of a training of {CONFIG}, {rows[0]['env_steps']:,} env steps, while a process of "
        "its own follows the run. W&B offline"
        + ("." if any(row["tracker"] == "wandb" for row in rows) else ": not installed here."),
        table(("tracker", "env steps/s", "to none"), cells),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    options = Options(repeats=args.repeats, quick=args.quick)
    print("\n\n".join(sections(measure(options))))


if __name__ == "__main__":
    main()
