"""Where the CPU time of a short training goes, from the shell to the prompt: start, training, exit.

    .venv/bin/python -m benchmarks.profile_start [CartPole-v1:fast] [--repeats 5]

Processes that do more and more of the same work take turns: a bare interpreter, one that imports
torch, one that imports all that a training imports, and a training. Each tells its CPU seconds when
its work is done; what its exit takes is the rest of what the system charges for it. `--profile`
splits the training itself (benchmarks/notes.md).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from gymnasium_solver.bench.harness import own_environment

TELL = "import sys, time; print(time.process_time(), file=sys.stderr)"
IMPORTS = """
import torch, gymnasium_solver.cli.train, gymnasium_solver.cli.console
import gymnasium_solver.training.loop, gymnasium_solver.algos.{algo_id}
import gymnasium_solver.envs.engines.gymnasium
"""
TRAINING = """
from gymnasium_solver.cli.main import main
code = main(["train", {config!r}, "-q", "--seed", "{seed}", "--runs-dir", {folder!r}])
assert code == 0, code
"""
Seconds = Mapping[str, tuple[float, float]]
"""By process: CPU seconds until its work is done, and of its exit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("config", nargs="?", default="CartPole-v1:fast")
    parser.add_argument("--repeats", type=int, default=5, help="runs, with seeds 1, 2, ...")
    args = parser.parse_args()
    algo_id = _algo_of(args.config)
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.repeats + 1):
            codes = {
                "interpreter": "",
                "torch": "import torch",
                "imports": IMPORTS.format(algo_id=algo_id),
                "training": TRAINING.format(config=args.config, seed=seed, folder=folder),
            }
            found = parts({name: cpu_seconds(code) for name, code in codes.items()})
            for name, took_s in found.items() if seed else ():  # the first one fills caches
                rows.setdefault(name, []).append(took_s)
    whole = [sum(run) for run in zip(*rows.values(), strict=True)]
    for name, seconds in [*rows.items(), ("together", whole)]:
        middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
        share = statistics.median(s / w for s, w in zip(seconds, whole, strict=True))
        print(f"{name:<42} {middle:6.2f} s ({low:.2f}–{high:.2f}) {share:6.1%}")


def parts(seconds: Seconds) -> dict[str, float]:
    """The CPU seconds of each part of a training, from those of processes that do more and more."""
    done = {name: work for name, (work, _) in seconds.items()}
    return {
        "interpreter": done["interpreter"],
        "import of torch": done["torch"] - done["interpreter"],
        "other imports": done["imports"] - done["torch"],
        "config, training, evaluations, saving": done["training"] - done["imports"],
        "exit, as after importing torch alone": seconds["torch"][1],
        "rest of the exit": seconds["training"][1] - seconds["torch"][1],
    }


def cpu_seconds(code: str) -> tuple[float, float]:
    """Until the code is done, and of the exit after it."""
    command = [sys.executable, "-c", f"{code}\n{TELL}"]
    with subprocess.Popen(
        command, env=own_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(told)
    work = float(told.split()[-1])
    return work, used.ru_utime + used.ru_stime - work


def _algo_of(config: str) -> str:
    from gymnasium_solver.training.prepare import load_config

    return load_config(config).algo_id


if __name__ == "__main__":
    main()
