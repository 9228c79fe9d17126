"""Does `compile: auto` choose the faster form, whether the cache of programs is empty or not?

    .venv/bin/python -m benchmarks.compile_auto
    .venv/bin/python -m benchmarks.compile_auto --budgets 5000 20000 --repeats 5

PPO with rl-zoo's settings for CartPole is trained whole, from the command to the verdict, with
NumPy programs, with compiled ones, and as `auto` chooses. Each run with an empty cache has a folder
of its own. The table has the least wall and CPU seconds of the repeats, and the ratio of `auto` to
the better form with the same cache. Other work on the machine makes all of them longer: repeat.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from gymnasium_solver.bench.harness import ROOT, say
from gymnasium_solver.fast.native.build import CACHE_VARIABLE

CONFIG = "CartPole-v1:ppo_zoo"
BUDGETS = (5_000, 10_000, 20_000, 50_000, 60_000, 100_000, 200_000, 500_000)
FLAGS = ["--seed", "1", "--device", "cpu", "--eval-freq-epochs", "null", "-q"]
FLAGS += ["--early-stop-on-eval-threshold", "false", "--test-episodes", "1"]


class Taken(NamedTuple):
    wall_s: float
    cpu_s: float


def taken(steps: int, form: str, cache: Path) -> Taken:
    """The time of one training, with the compilers that it starts and waits for."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "gymnasium_solver", "train", CONFIG, *FLAGS]
        command += ["--max-env-steps", str(steps), "--compile", form, "--runs-dir", runs]
        env = os.environ | {CACHE_VARIABLE: str(cache), "PYTHONPATH": str(ROOT)}
        before, start = os.times(), time.perf_counter()
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        wall_s, after = time.perf_counter() - start, os.times()
        is_finished = bool(list(Path(runs).glob("*/report.md")))
    if done.returncode not in (0, 1) or not is_finished:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    own = after.children_user + after.children_system
    return Taken(wall_s, own - before.children_user - before.children_system)


def least(found: list[Taken]) -> Taken:
    return Taken(min(t.wall_s for t in found), min(t.cpu_s for t in found))


def measure(steps: int, form: str, warm: Path | None) -> Taken:
    if warm is not None:
        return taken(steps, form, warm)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        return taken(steps, form, Path(empty))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS, help="env steps")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as filled:
        taken(1_000, "native", Path(filled))
        caches = {"empty": None, "warm": Path(filled)}
        say("| env steps | cache | NumPy, s (CPU) | compiled | auto | auto to the better |")
        say("|---|---|---|---|---|---|")
        for steps in args.budgets:
            # One after the other, so that a busy minute of the machine meets all of them.
            found: dict[tuple[str, str], list[Taken]] = {}
            for _ in range(args.repeats):
                for cache, folder in caches.items():
                    for form in ("numpy", "native", "auto"):
                        found.setdefault((cache, form), []).append(measure(steps, form, folder))
            for cache in caches:
                numpy, native, auto = (
                    least(found[cache, form]) for form in ("numpy", "native", "auto")
                )
                cells = " | ".join(f"{t.wall_s:.2f} ({t.cpu_s:.2f})" for t in (numpy, native, auto))
                ratio = auto.wall_s / min(numpy.wall_s, native.wall_s)
                cpu = auto.cpu_s / min(numpy.cpu_s, native.cpu_s)
                say(f"| {steps:,} | {cache} | {cells} | {ratio:.2f} (CPU {cpu:.2f}) |")


if __name__ == "__main__":
    main()
