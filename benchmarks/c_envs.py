"""Environments in C: the engine alone, and PPO on it beside EnvPool and Gymnasium's CartPole.

    .venv/bin/python -m benchmarks.c_envs                       # five turns, a few minutes
    .venv/bin/python -m benchmarks.c_envs --repeats 1 --steps 100000

The same work on each engine: 64 environments, 32 steps, two layers of 64, one or four passes over
the rollout. The engines take turns, ratios are taken turn by turn, and medians and ranges are
printed. A rate is of the second half of a training, after all is compiled; `rollouts` is of
collecting alone, without gradient steps. The first table is of the engine without a policy.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.bench.harness import say, spread, table
from gymnasium_solver.envs.engines.c.engine import Copies, load_program, shipped_names
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

ENGINES = {
    "C": ("c:cartpole", "auto"),
    "vector": ("CartPole-v1", "vector"),
    "EnvPool": ("CartPole-v1", "envpool"),
}
WORK = {
    "seed": 1, "n_envs": 64, "n_steps": 32, "batch_size": 512, "hidden_dims": [64, 64],
    "compile": "native", "normalize_obs": False, "normalize_reward": False, "gamma": 0.98,
    "eval_freq_epochs": None, "test_episodes": 1, "quiet": True,
    "early_stop_on_eval_threshold": False, "env_kwargs": {}, "spec": {},
}  # fmt: skip
TIMING = "train/sys/timing"


def engine_rate(name: str, n_envs: int = 1024, seconds: float = 1.0) -> float:
    """Millions of steps in a second of a core's time, with random actions."""
    program = load_program(f"c:{name}")
    copies = Copies(program, n_envs, program.facts.max_steps)
    rng, rows = np.random.default_rng(0), copies.rows
    given: np.ndarray
    if program.facts.action_size:
        given = rng.uniform(-1, 1, (16, *rows["actions"].shape)).astype(np.float32)
    else:
        given = rng.integers(program.facts.n_actions, size=(16, n_envs))
    copies.reset(0)
    n, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        rows["actions"][...] = given[n % len(given)]
        copies.function(copies._at)
        n += 1
    return n * n_envs / (time.process_time() - start) / 1e6


def pool_rate(n_envs: int = 1024, seconds: float = 1.0) -> float:
    """The same of EnvPool's CartPole; the time of all its threads counts."""
    env = make_vector_env("CartPole-v1", n_envs, vectorization_mode="envpool")
    env.reset(0)
    given = np.random.default_rng(0).integers(2, size=(16, n_envs))
    n, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        env.step(given[n % len(given)])
        n += 1
    env.close()
    return n * n_envs / (time.process_time() - start) / 1e6


def training_rates(engine: str, n_epochs: int, n_steps: int) -> tuple[float, float]:
    """Steps a second of the second half of a training: of all of it, and of its rollouts."""
    env_id, mode = ENGINES[engine]
    given: dict[str, Any] = {**WORK, "vectorization_mode": mode, "n_epochs": n_epochs}
    config = load_config(f"{env_id}:ppo", overrides={**given, "max_env_steps": n_steps})
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, runs_root=Path(folder))
        lines = (run.path / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if f"{TIMING}/collect_fps" in row]
    rows = [row for row in rows if row["env_steps"] >= n_steps / 2]
    n, wall_s = (rows[-1][key] - rows[0][key] for key in ("env_steps", "wall_s"))
    rollouts = float(np.median([row[f"{TIMING}/collect_fps"] for row in rows]))
    return n / wall_s, rollouts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400_000)
    args = parser.parse_args()
    turns = range(args.repeats)
    lines: list[tuple[str, ...]] = [
        (f"c:{name}", spread([engine_rate(name) for _ in turns], 2)) for name in shipped_names()
    ]
    lines.append(("CartPole-v1 on EnvPool", spread([pool_rate() for _ in turns], 2)))
    say(table(("1,024 copies, one core", "million steps/s"), lines))
    for n_epochs in (1, 4):
        found: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
        for _ in turns:
            for engine, rows in found.items():
                rows.append(training_rates(engine, n_epochs, args.steps))
        lines = []
        for engine, rows in found.items():
            pairs = list(zip(rows, found["EnvPool"], strict=True))
            ratios = [spread([own[i] / pool[i] for own, pool in pairs], 2) for i in (0, 1)]
            own = [spread([row[i] / 1000 for row in rows]) for i in (0, 1)]
            lines.append((engine, own[0], ratios[0], own[1], ratios[1]))
        head = ("PPO", "k steps/s", "x EnvPool", "rollouts, k steps/s", "x EnvPool")
        say(f"\n{n_epochs} passes over each rollout\n\n{table(head, lines)}")


if __name__ == "__main__":
    main()
