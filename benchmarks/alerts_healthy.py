"""Healthy runs of the shipped classics: no alert may be raised.

    .venv/bin/python -m benchmarks.alerts_healthy
    .venv/bin/python -m benchmarks.alerts_healthy --seeds 3 --steps LunarLander-v3:ppo=300000

One process, one run after another (nice it). A run that is already in the result is not trained
again, so the command can be interrupted. Raw figures go to results/alerts_healthy.json, the table
to results/alerts_healthy.md.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.alerts_ill import Ear
from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.runs import query
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

NAME = "alerts_healthy"
CONFIGS = ("CartPole-v1:ppo", "Acrobot-v1:ppo", "Pendulum-v1:ppo", "LunarLander-v3:ppo")
FIRST_SEED = 200  # the rules were tuned on seeds 100 to 109


def run_one(config_name: str, seed: int, max_env_steps: int | None) -> dict[str, Any]:
    fewer = {} if max_env_steps is None else {"max_env_steps": max_env_steps}
    config = load_config(config_name, overrides={"seed": seed, "n_threads": 1, **fewer})
    ear = Ear()
    with tempfile.TemporaryDirectory() as folder:
        run = query.get_run(train(config, runs_root=Path(folder), observers=[ear]))
    return {
        "config": config_name,
        "seed": seed,
        "max_env_steps": run.max_env_steps,
        "env_steps": run.env_steps,
        "epochs": run.epoch,
        "best": None if run.best is None else run.best["score"],
        "solved": run.solved,
        "alerts": [alert.to_dict() for alert in ear.alerts],
    }


def healthy_table(result: dict[str, Any]) -> str:
    by_config: dict[str, list[dict[str, Any]]] = {}
    for run in result["healthy_runs"]:
        by_config.setdefault(run["config"], []).append(run)
    rows = []
    for name, runs in by_config.items():
        loud = [run for run in runs if run["alerts"]]
        names = sorted({alert["name"] for run in loud for alert in run["alerts"]})
        scores = sorted(run["best"] for run in runs)
        budgets = sorted({run["max_env_steps"] for run in runs})
        rows.append(
            [
                f"`{name}`",
                len(runs),
                ", ".join(f"{budget:,}" for budget in budgets),
                f"{sum(run['epochs'] for run in runs):,}",
                f"{scores[0]:,.1f} to {scores[-1]:,.1f}",
                f"{len(loud)} of {len(runs)}" + (f": {', '.join(names)}" if names else ""),
            ]
        )
    heads = ["config", "seeds", "budget", "rows judged", "best evaluation", "runs with alerts"]
    return table(heads, rows)


def markdown(result: dict[str, Any]) -> str:
    return "\n\n".join(["# Alerts of healthy runs", describe(result), healthy_table(result)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="alerts_healthy.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--only", nargs="+", choices=CONFIGS, default=CONFIGS, metavar="CONFIG")
    parser.add_argument(
        "--steps", nargs="+", default=[], metavar="CONFIG=N", help="smaller budgets, in env steps"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    steps = {name: int(n) for name, _, n in (word.partition("=") for word in args.steps)}
    path = args.out / f"{NAME}.json"
    done = json.loads(path.read_text())["healthy_runs"] if path.exists() else []
    result: dict[str, Any] = header("python -m benchmarks.alerts_healthy") | {"healthy_runs": done}
    for name in args.only:
        for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
            if any((run["config"], run["seed"]) == (name, seed) for run in done):
                continue
            found = run_one(name, seed, steps.get(name))
            names = ", ".join(alert["name"] for alert in found["alerts"])
            say(f"{name} seed {seed}: {names or 'silent'}")
            done.append(found)
            write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
