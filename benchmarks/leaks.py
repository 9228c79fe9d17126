"""Whether many trainings in one process leave anything behind: `python -m benchmarks.leaks`.

Trains tiny runs of several algorithms on every engine, one after the other, and prints memory, open
files, threads and child processes after each round. All but the memory must stay where they are
after the first round; the memory may grow by what caches hold, and levels off.
"""

import argparse
import gc
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

TINY: dict[str, Any] = {
    "seed": 1, "n_envs": 2, "n_steps": 16, "max_epochs": 2, "hidden_dims": [8], "batch_size": 16,
    "eval_freq_epochs": 1, "eval_episodes": 1, "test_episodes": 1,
}  # fmt: skip
REPLAY = {"buffer_size": 64, "learning_starts": 8, "train_freq": 4, "batch_size": 8}
CASES: list[dict[str, Any]] = [
    {"env_id": "CartPole-v1", "algo_id": "ppo", "vectorization_mode": "envpool"},
    {"env_id": "CartPole-v1", "algo_id": "dqn", "vectorization_mode": "sync", **REPLAY},
    {"env_id": "Pendulum-v1", "algo_id": "sac", "vectorization_mode": "envpool", **REPLAY},
    {"env_id": "CartPole-v1", "algo_id": "ppo", "vectorization_mode": "async"},
    {"env_id": "CartPole-v1", "algo_id": "reinforce", "recurrent": "gru"},
]


class Held(NamedTuple):
    """What the process holds."""

    megabytes: float
    files: int
    threads: int
    children: int


def held() -> Held:
    gc.collect()
    process = psutil.Process()
    files = process.num_fds() if hasattr(process, "num_fds") else process.num_handles()
    memory = process.memory_info().rss / 2**20
    return Held(memory, files, process.num_threads(), len(process.children(recursive=True)))


def train_all(cases: list[dict[str, Any]], root: Path) -> None:
    for case in cases:
        loop.train(build_config({**TINY, **case}), runs_root=root)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainings", type=int, default=200)
    args = parser.parse_args()
    rounds = -(-args.trainings // len(CASES))
    print("trainings  memory MB  files  threads  children")
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, rounds + 1):
            train_all(CASES, Path(folder))
            seen.append(held())
            if number in (1, 2) or number % 5 == 0 or number == rounds:
                now = seen[-1]
                print(f"{number * len(CASES):9}  {now.megabytes:9.1f}  {now.files:5}  "
                      f"{now.threads:7}  {now.children:8}", flush=True)  # fmt: skip
    half = seen[len(seen) // 2]
    slope = (seen[-1].megabytes - half.megabytes) / max(1, (rounds - rounds // 2) * len(CASES))
    print(f"memory in the second half: {1000 * slope:+.1f} kB per training")
    return 0 if seen[-1][1:] == seen[0][1:] else 1


if __name__ == "__main__":
    sys.exit(main())
