"""What logging costs a CartPole PPO run, and that it changes nothing.

    gsolve bench --only logging
    .venv/bin/python -m benchmarks.logging_cost --repeats 7      # prints the tables alone

Two measures of CPU time, in this process, on one thread:
- Side by side, in turns: `bare` builds no rows, computes no details and judges nothing; `rows` has
  rows without details and alerts; `full` is the default. On a busy machine this is noisy.
- Inside one run: the CPU time of every function that only logging needs, as a share of the run.

All runs must end with the same weights.
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from gymnasium_solver.algos import ppo
from gymnasium_solver.algos.on_policy import Targets
from gymnasium_solver.algos.units import Units
from gymnasium_solver.bench.harness import Options, say, spread, table
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.epoch_metrics import RolloutDetails
from gymnasium_solver.training.observer import Alerts
from gymnasium_solver.training.prepare import load_config

STEPS, QUICK_STEPS = 50_000, 4_000
OFF = {"log_details_freq_epochs": None, "mute_alerts": ["all"]}
SIDES: dict[str, dict[str, Any]] = {"bare": OFF, "rows": OFF, "full": {}}


def train(side: str, env_steps: int) -> tuple[float, str]:
    """CPU seconds of a run, and a hash of its last weights."""
    fields = {
        "seed": 1,
        "n_threads": 1,
        "max_env_steps": env_steps,
        "eval_freq_epochs": None,
        "early_stop_on_eval_threshold": None,
        "test_episodes": 1,
        "checkpoint_freq_epochs": 10**6,
    }
    config = load_config("CartPole-v1:ppo", overrides={**fields, **SIDES[side]})
    silent = patch.object(Run, "log_metrics", lambda run, row: None)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        with silent if side == "bare" else nullcontext(), _no_rows(side == "bare"):
            run = loop.train(config, runs_root=Path(folder))
        seconds = time.process_time() - started
        weights = (run.checkpoints_dir / "last" / "model.safetensors").read_bytes()
    return seconds, hashlib.sha256(weights).hexdigest()


def _no_rows(is_on: bool) -> Any:
    """Build no row of metrics: the clock only."""

    def bare_row(p: Any, *others: Any) -> dict[str, Any]:
        return {"env_steps": p.env_steps}

    if not is_on:
        return nullcontext()
    return patch.multiple(loop, epoch_row=bare_row, timing=lambda *args: {})


PARTS: dict[str, list[tuple[Any, str]]] = {
    "rows": [(loop, "epoch_row"), (loop, "timing"), (Run, "log_metrics"), (ppo, "scaled_losses")],
    "details": [
        (RolloutDetails, "__init__"),
        (RolloutDetails, "add"),
        (RolloutDetails, "metrics"),
        (Targets, "details"),
        (Units, "metrics"),
        (FlatOptimizer, "part_norms"),
    ],
    "alerts": [(Alerts, "catch_up")],
}


def shares(env_steps: int) -> dict[str, float]:
    """Share of the CPU time of a run that each part of logging takes."""
    spent = dict.fromkeys(PARTS, 0.0)

    def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += time.thread_time() - started

        return call

    with ExitStack() as patches:
        for part, places in PARTS.items():
            for owner, name in places:
                patches.enter_context(
                    patch.object(owner, name, clocked(part, getattr(owner, name)))
                )
        total, _ = train("full", env_steps)
    return {part: seconds / total for part, seconds in spent.items()}


def measure(options: Options) -> dict[str, Any]:
    """CPU seconds of each side and repeat, shares inside a run, and whether the weights agree."""
    steps = QUICK_STEPS if options.quick else STEPS
    say(f"logging: {len(SIDES)} sides, {options.repeats} times each")
    train("full", 2_000)  # imports and first uses
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    hashes = set()
    inside: list[dict[str, float]] = []
    for _ in range(options.repeats):
        for side in SIDES:
            taken, digest = train(side, steps)
            seconds[side].append(taken)
            hashes.add(digest)
        inside.append(shares(steps))
    found = {"env_steps": steps, "seconds": seconds, "shares": inside}
    return found | {"same_weights": len(hashes) == 1, "rows": []}


def sections(result: dict[str, Any]) -> list[str]:
    seconds = result["seconds"]
    rows = []
    for side, values in seconds.items():
        more = [100 * (b / a - 1) for a, b in zip(seconds["bare"], values, strict=True)]
        rows.append([side, spread(values, 2), f"{median(more):+.1f} %", spread(more, 1)])
    text = (
        f"CartPole-v1:ppo, {result['env_steps']:,} env steps without evaluations, on one thread: "
        "`bare` builds no rows of metrics, `rows` has them without details and alerts, `full` is "
        "the default. The weights of all runs are "
        f"{'the same' if result['same_weights'] else '**not** the same'}."
    )
    heads = ["side", "CPU seconds", "more than bare, median", "by repeat, in %"]
    parts = [[part, spread([100 * s[part] for s in result["shares"]], 2)] for part in PARTS]
    whole = [100 * sum(each.values()) for each in result["shares"]]
    inside = table(["part", "% of the run's CPU time"], [*parts, ["all", spread(whole, 2)]])
    page = ["## The cost of logging", text, table(heads, rows)]
    return [*page, "Inside a run, what only logging needs:", inside]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="logging_cost.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=7, metavar="N")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    options = Options(repeats=args.repeats, quick=args.quick)
    print("\n\n".join(sections(measure(options))))


if __name__ == "__main__":
    main()
