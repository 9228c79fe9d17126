"""One learner with collectors beside the same training in one process: steps/s and scores.

    python -m benchmarks.collectors --seeds 3                   # about 30 minutes on two cores
    python -m benchmarks.collectors --seeds 1 --max-env-steps 8000 --setups alone process-1

CartPole steps fast: what collectors cost. SlowPole waits 2 ms at every step (slow_pole.py): what
they gain; `alone async` is one process with each environment in a process of its own, the other way
to hide slow environments. PPO learns on-policy, DQN with a replay. Setups take turns within a seed.
Speed is env steps per second between the first and the last epoch, without the start. Written to
benchmarks/results/collectors.json and .md.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium_solver.runs import machine
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

# A hundred test episodes would take longer than the training.
SLOW = {"env_id": "benchmarks.slow_pole:SlowPole-v0", "vectorization_mode": "sync",
        "eval_freq_epochs": None, "eval_episodes": 10}  # fmt: skip
PPO = {"n_envs": 8, "n_steps": 64, "batch_size": 128, "n_epochs": 4, "max_env_steps": 60_000}
DQN = {"n_envs": 8, "train_freq": 256, "n_steps": 64, "updates_per_step": 0.25,
       "max_env_steps": 60_000}  # fmt: skip
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole ppo": ("CartPole-v1:ppo", PPO),
    "SlowPole ppo": ("CartPole-v1:ppo", {**PPO, **SLOW}),
    "SlowPole dqn": ("CartPole-v1:dqn", {**DQN, **SLOW}),
}
SETUPS: dict[str, dict[str, Any]] = {
    "alone": {},
    "alone async": {"vectorization_mode": "async"},
    "process-0": {"collectors": {"n": 4}},
    "process-1": {"collectors": {"n": 4, "max_staleness": 1}},
    "ray-1": {"collectors": {"n": 4, "max_staleness": 1, "backend": "ray"}},
}
RESULTS = Path(__file__).parent / "results"


def measured(task: str, setup: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    target, fields = TASKS[task]
    more = {} if args.max_env_steps is None else {"max_env_steps": args.max_env_steps}
    fixed = {"seed": seed, "early_stop_on_eval_threshold": False, "eval_freq_epochs": None}
    config = load_config(target, overrides={**fields, **fixed, **more, **SETUPS[setup]})
    run = train(config, runs_root=args.runs_dir)
    return {"task": task, "setup": setup, "seed": seed, **figures(run)}


def figures(run: Run) -> dict[str, Any]:
    rows = list(read_jsonl(run.metrics_path))
    first, last = rows[0], rows[-1]
    seconds = last["wall_s"] - first["wall_s"]
    lags = [
        row["train/roll/policy_lag/mean"] for row in rows if "train/roll/policy_lag/mean" in row
    ]
    return {
        "steps_per_s": (last["env_steps"] - first["env_steps"]) / max(seconds, 1e-9),
        "score": run.meta()["test"]["mean"],
        "lag": sum(lags) / len(lags) if lags else None,
    }


def markdown(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    lines = [
        "# Collectors beside one process",
        "",
        f"`python -m benchmarks.collectors --seeds {args.seeds}`, medians over seeds. Speed in env",
        "steps per second; the factor is that of the same seed, alone.",
        "",
        "| task | setup | steps/s | factor | test score | policy lag |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for task in TASKS:
        for setup in SETUPS:
            own = [row for row in rows if (row["task"], row["setup"]) == (task, setup)]
            alone = {r["seed"]: r for r in rows if (r["task"], r["setup"]) == (task, "alone")}
            if not own:
                continue
            speed = median(row["steps_per_s"] for row in own)
            ratios = [
                row["steps_per_s"] / alone[row["seed"]]["steps_per_s"]
                for row in own
                if row["seed"] in alone
            ]
            factor = f"{median(ratios):.2f}" if ratios else ""
            lag = "" if own[0]["lag"] is None else f"{median(row['lag'] for row in own):.2f}"
            score = median(row["score"] for row in own)
            lines.append(f"| {task} | {setup} | {speed:,.0f} | {factor} | {score:.1f} | {lag} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--setups", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--max-env-steps", type=int)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/collectors"))
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "collectors.json")
    args = parser.parse_args()
    # Ray's workers import slow_pole too.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    rows = []
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            for setup in args.setups:
                if setup == "alone async" and "CartPole" in task:
                    continue  # EnvPool steps them in threads already
                rows.append(measured(task, setup, seed, args))
                print(rows[-1], flush=True)
    settings = {"tasks": TASKS, "setups": SETUPS, "max_env_steps": args.max_env_steps}
    content = {"settings": settings, "machine": machine.machine(), "rows": rows}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(content, indent=2) + "\n")
    args.output.with_suffix(".md").write_text(markdown(rows, args))
    print(markdown(rows, args))


if __name__ == "__main__":
    main()
