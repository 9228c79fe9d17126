"""How fast a training is, here or in another checkout: env steps in a second of CPU time.

    PYTHONPATH=CHECKOUT .venv/bin/python benchmarks/training_rate.py CartPole-v1:ppo '{"n_envs": 8}'

Prints one JSON line. Only what older commits have too is used.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config

COMPILES = 0.25  # of a training: start, recording and compiling are in this part


class Clock(Observer):
    """The clocks at the end of each epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.seen.append((row["env_steps"], time.process_time()))


def training_rate(target: str, fields: dict[str, Any]) -> float:
    """Env steps in a second of CPU time, of all threads, without the start, evaluations before and
    after, and the first quarter, in which programs are compiled."""
    clock, config = Clock(), load_config(target, overrides=fields)
    with tempfile.TemporaryDirectory() as folder:
        train(config, runs_root=Path(folder), observers=[clock])
    (first, start_s), (last, end_s) = clock.seen[int(COMPILES * len(clock.seen))], clock.seen[-1]
    return (last - first) / (end_s - start_s)


if __name__ == "__main__":
    print(json.dumps({"steps_per_s": training_rate(sys.argv[1], json.loads(sys.argv[2]))}))
