"""Is this checkout as fast as an older one? The same trainings in both, in turns.

    .venv/bin/python -m benchmarks.before_after 8ce06b8 --repeats 9
    .venv/bin/python -m benchmarks.before_after 8ce06b8 --one-thread
    .venv/bin/python -m benchmarks.before_after 8ce06b8 --device cuda      (SAC and Pong on a GPU)

The older one is a commit, which is checked out into a temporary folder, or a folder.
Each training is a process of its own with the threads that the library picks, or one thread on one
core, and takes turns with the same one of the other checkout (older, newer, newer, older, ...). The
rate is env steps by the seconds of the run without its final test. Of start-up it is commands per
second, imports and exit included. Ratios are of medians. Figures go to results/before_after.json
(of a GPU before_after_cuda.json), the table next to it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium_solver.bench.harness import ROOT, cores, describe, header, say, spread, table, write

NAME = "before_after"
CONFIGS = ROOT / "benchmarks/configs"
SAC = f"{CONFIGS}/halfcheetah_sb3.yaml:sac"
PONG = ["--n-envs", "128", "--n-steps", "32"]
START_UP = "start-up"
CASES: dict[str, tuple[str, int, list[str]]] = {
    "PPO CartPole-v1": (f"{CONFIGS}/cartpole_zoo.yaml:ppo", 100_000, []),
    "DQN CartPole-v1": (f"{CONFIGS}/cartpole_zoo.yaml:dqn", 8_000, []),
    "SAC HalfCheetah-v5": (SAC, 1_800, []),
    "PPO Pendulum-v1": ("Pendulum-v1:ppo", 60_000, []),
    "PPO with a GRU": (f"{CONFIGS}/cartpole_zoo.yaml:ppo", 40_000, ["--recurrent", "gru"]),
    f"{START_UP}: --help": ("--help", 0, []),
    f"{START_UP}: list": ("list", 0, []),
    f"{START_UP}: train": ("train", 0, ["CartPole-v1:ppo", "--max-env-steps", "2048"]),
}
CUDA_CASES: dict[str, tuple[str, int, list[str]]] = {
    "SAC HalfCheetah-v5": (SAC, 15_000, []),
    "PPO ALE/Pong-v5": ("ALE/Pong-v5:ppo_v4", 250_000, PONG),
}
FLAGS = ["--seed", "1", "--early-stop-on-eval-threshold", "false"]
FLAGS += ["--eval-freq-epochs", "null", "--test-episodes", "1", "-q"]


@contextmanager
def checked_out(older: str) -> Iterator[Path]:
    """The folder of the older checkout: the given one, or a temporary one of a commit."""
    if Path(older).is_dir():
        yield Path(older).resolve()
        return
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp) / "older"
        added = _git("worktree", "add", "--detach", str(folder), older)
        if added.returncode != 0:
            reason = added.stderr.strip().splitlines()[-1]
            sys.exit(f"before_after: {older} is neither a folder nor a commit: {reason}")
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)


def rate(
    checkout: Path, config: str, steps: int, more: list[str], device: str, core: int | None = None
) -> float:
    """Env steps per second of one training, from its first to its last row of metrics. `core`: with
    one thread, on this core (Linux only). Without steps: commands per second."""
    if not steps:
        return start_up(checkout, [config, *more])
    flags = [*FLAGS, *more, "--device", device]
    flags += [] if core is None else ["--n-threads", "1"]
    pin = None
    if core is not None and hasattr(os, "sched_setaffinity"):
        pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "gymnasium_solver", "train", config, *flags]
        done = subprocess.run(
            [*command, "--max-env-steps", str(steps), "--runs-dir", runs],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            check=False,
            preexec_fn=pin,
            capture_output=True,
            text=True,
        )
        if done.returncode not in (0, 1):  # 1: not solved
            sys.exit(f"before_after: {config} fails in {checkout}:\n{done.stderr.strip()}")
        (rows,) = Path(runs).glob("*-*/metrics.jsonl")
        first, *_, last = [json.loads(line) for line in rows.read_text().splitlines()]
    return float((last["env_steps"] - first["env_steps"]) / (last["wall_s"] - first["wall_s"]))


def start_up(checkout: Path, words: list[str]) -> float:
    """How often per second the command can be run, one after the other."""
    with tempfile.TemporaryDirectory() as runs:
        place = ["--runs-dir", runs, *FLAGS] if words[0] == "train" else []
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "gymnasium_solver", *words, *place],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            check=False,
            capture_output=True,
        )
        return 1 / (time.perf_counter() - begun)


def markdown(result: dict[str, Any]) -> str:
    rows = []
    for name, found in result["rates"].items():
        older, newer = found["older"], found["newer"]
        ratio = f"{median(newer) / median(older):.2f}"
        digits = 2 if name.startswith(START_UP) else 0
        rows.append([name, len(newer), spread(older, digits), spread(newer, digits), ratio])
    heads = ["training", "repeats", "older, per second", "newer, per second", "ratio"]
    about = f"Older: commit {result['older']}. Medians with the range."
    return "\n\n".join(
        ["# This checkout compared with an older one", describe(result), about, table(heads, rows)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("older", help="a commit, or the folder of another checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*CASES, *CUDA_CASES])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one-thread", action="store_true", help="and one core for each")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    with checked_out(args.older) as older:
        result = measure(older, args)
    print(markdown(result))


def measure(older: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train in turns; the files are written after each repeat."""
    known = CASES if args.device == "cpu" else CUDA_CASES
    cases = {name: case for name, case in known.items() if name in (args.only or known)}
    rates: dict[str, dict[str, list[float]]] = {name: {"older": [], "newer": []} for name in cases}
    commit = _git("rev-parse", "--short", "HEAD", cwd=older).stdout.strip() or args.older
    how = " --one-thread" if args.one_thread else ""
    how += "" if args.device == "cpu" else f" --device {args.device}"
    result = header(f"python -m benchmarks.before_after {commit} --repeats {args.repeats}{how}")
    result |= {"benchmark": NAME, "older": commit, "rates": rates}
    sides = [("older", older), ("newer", ROOT)]
    for repeat in range(args.repeats):
        core = cores()[repeat % len(cores())] if args.one_thread else None
        for name, case in cases.items():
            for side, checkout in sides if repeat % 2 == 0 else sides[::-1]:
                rates[name][side].append(rate(checkout, *case, args.device, core))
            say(f"{name}: {rates[name]['older'][-1]:,.2f} {rates[name]['newer'][-1]:,.2f}")
        file = NAME if args.device == "cpu" else f"{NAME}_{args.device}"
        write(args.out, file, result, markdown(result))
    return result


if __name__ == "__main__":
    main()
