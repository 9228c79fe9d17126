"""Pong from pixels with PPO: steps/s of several numbers of environments.

    .venv/bin/python -m benchmarks.pong_speed                           (an NVIDIA GPU, many cores)
    .venv/bin/python -m benchmarks.pong_speed --only 128 --repeats 5

Every setting learns from as many samples per update, with the same minibatches. They take turns,
`--repeats` times, `--seconds` each after the environments are made; the first fifth does not count.
The share of the environments is the time that the loop waits for them. Raw figures go to
results/pong_speed.json, the table to results/pong_speed.md.
"""

import argparse
import shlex
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pong_pixels import PARTS, Clock, gpu_name, speed
from gymnasium_solver.bench.harness import ROOT, describe, header, say, spread, table, write
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

NAME = "pong_speed"
SETTINGS: dict[str, dict[str, Any]] = {
    "64": {"n_envs": 64, "n_steps": 64},
    "128": {"n_envs": 128, "n_steps": 32},
    "256": {"n_envs": 256, "n_steps": 16},
}


def measure(config_id: str, changes: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    quiet = {"eval_freq_epochs": None, "early_stop_on_train_threshold": False}
    config = load_config(config_id).replace(**quiet, **changes, device=device, seed=1)
    clock = Clock(seconds)
    with tempfile.TemporaryDirectory() as runs:
        train(config, runs_root=Path(runs), observers=[clock])
    return speed(clock.rows)


def markdown(result: dict[str, Any]) -> str:
    rows = []
    for name in SETTINGS:
        runs = [row for row in result["rows"] if row["setting"] == name]
        if not runs:
            continue
        shares = [median(run["parts"][part]["share"] for run in runs) for part in PARTS]
        rates = spread([run["steps_per_s"] for run in runs])
        rows.append((name, rates, *(f"{share:.0%}" for share in shares)))
    head = ("environments", "steps/s", *PARTS)
    about = f"`{result['config']}` on {result['gpu'] or 'the CPU'}."
    title = "# Pong from pixels: steps/s"
    return "\n\n".join([title, describe(result), about, table(head, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="pong_speed.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", default="ALE/Pong-v5:ppo_v4")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each training")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    command = f"python -m benchmarks.pong_speed --repeats {args.repeats} --seconds {args.seconds:g}"
    if args.only != list(SETTINGS):
        command += f" --only {shlex.join(args.only)}"
    result = header(command) | {"benchmark": NAME, "config": args.config, "gpu": gpu_name()}
    result["rows"] = []
    for repeat in range(args.repeats):
        for name in args.only:
            found = measure(args.config, SETTINGS[name], args.device, args.seconds)
            say(f"pong_speed: {name}: {found['steps_per_s']:,.0f} steps/s")
            result["rows"].append({"setting": name, "repeat": repeat, **found})
            write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
