"""One learner with collectors compared with the same training in one process: steps/s and scores.

    python -m benchmarks.collectors --seeds 3                   # about 30 minutes on two cores
    python -m benchmarks.collectors --seeds 1 --max-env-steps 8000 --setups alone ray-1

CartPole steps fast: what collectors cost. SlowPole waits 2 ms at every step (slow_pole.py): what
they gain; `alone async` is one process with each environment in a process of its own, the other way
to hide slow environments. PPO learns on-policy, DQN with a replay. Setups take turns within a seed.
Speed is env steps per second between the first and the last epoch, without the start. Written to
benchmarks/results/collectors.json and .md.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium_solver.bench.harness import ROOT, describe, header, spread, table, write
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

NAME = "collectors"
# A hundred test episodes would take longer than the training.
SLOW = {"env_id": "benchmarks.slow_pole:SlowPole-v0", "vectorization_mode": "sync",
        "test_episodes": 8}  # fmt: skip
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
    "ray-0": {"collectors": {"n": 4}},
    "ray-1": {"collectors": {"n": 4, "max_staleness": 1}},
}
SHOWN = {
    "alone": "one process",
    "alone async": "one process, each environment in its own",
    "ray-0": "4 collectors on Ray, in turns with the learner",
    "ray-1": "4 collectors on Ray, at most one update behind",
}


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


def markdown(result: dict[str, Any]) -> str:
    rows, lines = result["rows"], []
    for task in TASKS:
        for setup in SETUPS:
            own = [row for row in rows if (row["task"], row["setup"]) == (task, setup)]
            alone = {r["seed"]: r for r in rows if (r["task"], r["setup"]) == (task, "alone")}
            if not own:
                continue
            ratios = [
                row["steps_per_s"] / alone[row["seed"]]["steps_per_s"]
                for row in own
                if row["seed"] in alone
            ]
            factor = spread(ratios, 2) if ratios else "–"
            lag = "–" if own[0]["lag"] is None else f"{median(row['lag'] for row in own):.2f}"
            rate, score = (spread([row[name] for row in own]) for name in ("steps_per_s", "score"))
            lines.append((task, SHOWN[setup], rate, factor, score, lag))
    n_seeds, n_steps = len({row["seed"] for row in rows}), result["max_env_steps"]
    about = (
        f"Medians over {n_seeds} seeds, with the range; {n_steps:,} env steps each. Speed in env "
        "steps per second; the factor is that to the same seed, alone. Policy lag: updates between "
        "the weights that acted and those that learnt. SlowPole waits 2 ms at every step."
    )
    head = ("task", "setup", "steps/s", "factor", "test score", "policy lag")
    return "\n\n".join(["# Collectors", describe(result), about, table(head, lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--setups", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--max-env-steps", type=int)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/collectors"))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    # Ray's workers import slow_pole too.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    begun, rows = header(""), []
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            for setup in args.setups:
                if setup == "alone async" and "CartPole" in task:
                    continue  # EnvPool steps them in threads already
                rows.append(measured(task, setup, seed, args))
                print(rows[-1], flush=True)
    command = f"python -m benchmarks.collectors --seeds {args.seeds}"
    if args.max_env_steps is not None:
        command += f" --max-env-steps {args.max_env_steps}"
    result = begun | {"command": command, "benchmark": NAME, "rows": rows}
    result["max_env_steps"] = args.max_env_steps or PPO["max_env_steps"]
    write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
