"""CleanRL's published ppo.py, run as it is, as a process of its own.

    .venv-peers/bin/python -m benchmarks.peers.cleanrl_ppo zoo --steps 50000
    .venv-peers/bin/python -m benchmarks.peers.cleanrl_ppo CartPole-v1 --eval-every 5000 \
        --eval-episodes 100 --threshold 475

CleanRL is files, not a library: `make peers` fetches this one at a pinned commit (the task `fetch`)
into the peers' environment. It is run unchanged, in a folder of its own; the line it prints after
each iteration tells the time, and is where its agent is evaluated. It is written for Gymnasium
0.29: on 1.x it also learns from the rows in which envs are reset, which costs it a few steps.
"""

import argparse
import builtins
import hashlib
import json
import os
import runpy
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.goal import Goal, add_arguments
from benchmarks.peers.zoo import CLEANRL_STEPS, CLEANRL_ZOO

SCRIPT = Path(sys.prefix) / "cleanrl/ppo.py"
PACKAGES = ("torch", "gymnasium", "numpy", "tensorboard", "tyro")
ENV_ID = "CartPole-v1"
COMMIT = "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"
SHA256 = "d8dfbb7ac0b21e747b77d6e6673e566db4d6cdacc83bcebcd19cf87ad0e459ae"
SOURCE = f"https://raw.githubusercontent.com/vwxyzjn/cleanrl/{COMMIT}/cleanrl/ppo.py"


def fetch() -> None:
    """The published file, as it was at that commit."""
    if SCRIPT.exists() and hashlib.sha256(SCRIPT.read_bytes()).hexdigest() == SHA256:
        return
    with urllib.request.urlopen(SOURCE, timeout=30) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit(f"{SOURCE} is not the file it was")
    SCRIPT.parent.mkdir(exist_ok=True)
    SCRIPT.write_bytes(content)


class Stop(Exception):
    """Ends the script: solved, or out of time."""


class Watch:
    """Stands in for the script's `print`, which tells of each iteration."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.goal = args, Goal(args, self.score)
        self.marks: list[tuple[float, int, float]] = []
        self.names: dict[str, Any] = {}
        self.envs: Any = None

    def __call__(self, *words: Any, **options: Any) -> None:
        if not words or words[0] != "SPS:":
            return
        self.names = sys._getframe(1).f_globals
        env_steps = self.names["global_step"]
        self.marks.append((time.perf_counter(), env_steps, self.goal.eval_s))
        if self.goal.reached(env_steps):
            raise Stop

    def score(self, episodes: int) -> float:
        """Mean return of whole greedy episodes, one an env."""
        import gymnasium
        import numpy as np
        import torch

        envs = gymnasium.make_vec(ENV_ID, episodes, vectorization_mode="vector_entry_point")
        obs, _ = envs.reset(seed=self.args.seed + 10_000)
        total, running = np.zeros(episodes), np.ones(episodes, bool)
        with torch.no_grad():
            while running.any():
                logits = self.names["agent"].actor(torch.as_tensor(obs, dtype=torch.float32))
                obs, reward, terminated, truncated, _ = envs.step(logits.argmax(1).numpy())
                total += reward * running
                running &= ~(terminated | truncated)
        envs.close()
        return float(total.mean())


def train(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    steps = args.steps or CLEANRL_STEPS
    given = CLEANRL_ZOO if args.task == "zoo" else {}
    flags = {**given, "total-timesteps": steps, "seed": args.seed, "no-cuda": None}
    sys.argv = [str(SCRIPT)]
    for name, value in flags.items():
        sys.argv += [f"--{name}"] if value is None else [f"--{name}", str(value)]
    watch = Watch(args)
    with tempfile.TemporaryDirectory() as folder:  # where it logs to
        os.chdir(folder)
        with suppress(Stop):
            runpy.run_path(str(SCRIPT), init_globals={"print": watch}, run_name="__main__")
        os.chdir("/")
    (start, first, eval_before), (end, last, eval_after) = watch.marks[0], watch.marks[-1]
    took_s = end - start - (eval_after - eval_before)
    return {
        "env_steps": last,
        "steps_per_s": (last - first) / took_s if last > first else None,
        "threads": torch.get_num_threads(),
        **watch.goal.record(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=("zoo", ENV_ID, "fetch"))
    add_arguments(parser)
    args = parser.parse_args()
    if args.task == "fetch":
        return fetch()
    if not SCRIPT.exists():
        raise SystemExit("CleanRL's ppo.py could not be fetched when the peers were installed")
    result: dict[str, Any] = {"versions": {name: version(name) for name in PACKAGES}}
    if not args.versions:
        result |= train(args)
    builtins.print(json.dumps(result))


if __name__ == "__main__":
    main()
