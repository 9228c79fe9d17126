"""Ten seeds as a stack against one seed, from the shell to the end, in turns.

    .venv/bin/python -m benchmarks.stack                    # --device cuda on a machine with a GPU
    .venv/bin/python -m benchmarks.stack --config CartPole-v1:dqn --seeds 10 --repeats 3

Each command is a process of its own: `gsolve train CONFIG --seed 1`, `--seeds 10 --stack`, and for
comparison `--seeds 10 --jobs N` with one process per seed, N at a time. The aim: at most 4 times
the time of one seed on a CPU, at most twice on a GPU. The time of one seed is a mean over seeds, as
some are solved much sooner than others. For a short measurement: `--ways stacked --singles 2`.
Raw figures go to results/stack.json, the table to results/stack.md; on a GPU to stack_cuda.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write

NAME = "stack"
WAYS = ("stacked", "stacked, one process", "a process per seed")


def seconds(words: list[str]) -> float:
    """Wall time of one command from its start to its end, in a folder of its own."""
    with tempfile.TemporaryDirectory() as runs:
        argv = [sys.executable, "-m", "gymnasium_solver", "train", *words, "-q", "--runs-dir", runs]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        began = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=variables)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="CartPole-v1:ppo")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--singles", type=int, help="seeds trained alone in a turn, at most")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    result = started(args)
    common = [args.config, "--device", args.device]
    many = [*common, "--seeds", str(args.seeds)]
    words = {
        "stacked": ["--stack"],
        "stacked, one process": ["--stack", "--jobs", "1"],
        "a process per seed": ["--jobs", str(args.jobs)],
    }
    shown = {"a process per seed": f"a process per seed, {args.jobs} at a time"}
    ways = {shown.get(name, name): [*many, *words[name]] for name in args.ways}
    times: dict[str, list[float]] = {"one seed": [], **{name: [] for name in ways}}
    for turn in range(args.repeats):
        own = range(1 + turn, args.seeds + 1, args.repeats)[: args.singles]
        times["one seed"].append(mean(seconds([*common, "--seed", str(s)]) for s in own))
        for name, argv in ways.items():
            times[name].append(seconds(argv))
        say(f"turn {turn + 1}: " + ", ".join(f"{k} {v[-1]:.1f} s" for k, v in times.items()))
    result["times_s"] = times
    name = NAME if args.device == "cpu" else f"{NAME}_{args.device}"
    write(args.out, name, result, markdown(result))


def started(args: argparse.Namespace) -> dict[str, Any]:
    """What is known before the first command; the load of the machine is that of others."""
    words = ["--config", args.config, "--device", args.device]
    if args.ways != list(WAYS):
        words += ["--ways", *(shlex.quote(way) for way in args.ways)]
    if args.singles is not None:
        words += ["--singles", str(args.singles)]
    result = header(f"python -m benchmarks.stack {' '.join(words)}")
    result |= {"benchmark": NAME, "config": args.config, "device": args.device}
    if args.device.startswith("cuda"):
        result["gpu"] = gpu_name()
    return result | {"seeds": args.seeds, "singles": args.singles}


def gpu_name() -> str | None:
    """Asked in a process of its own: this one must not hold a part of the GPU."""
    code = "import torch; print(torch.cuda.get_device_name())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return found.stdout.strip() or None


def markdown(result: dict[str, Any]) -> str:
    times: dict[str, list[float]] = result["times_s"]
    n, one = len(times["one seed"]), median(times["one seed"])
    rows = [
        (name, f"{median(found):.1f} s", f"{median(found) / one:.2f}")
        for name, found in times.items()
    ]
    device = result.get("gpu") or result["device"]
    about = f"{result['config']}, {result['seeds']} seeds, {device}, medians of {n} turns."
    if singles := result.get("singles"):
        about += f" One seed: the mean of {singles} seeds in each turn."
    columns = ("", "shell to end", "times one seed")
    return "\n\n".join(["# Stacked seeds", describe(result), about, table(columns, rows)])


if __name__ == "__main__":
    main()
