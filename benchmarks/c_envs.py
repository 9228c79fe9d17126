"""Environments in C: the engine alone, and PPO on it beside EnvPool and Gymnasium's CartPole.

    .venv/bin/python -m benchmarks.c_envs                       # five turns, a few minutes
    .venv/bin/python -m benchmarks.c_envs --repeats 1 --steps 100000

The same work on each engine: 64 environments, 32 steps, two layers of 64, one thread, one or four
passes over the rollout. The engines take turns, ratios are taken turn by turn, and medians and
ranges are shown. Rates are of CPU time, which other processes disturb little. The first table is
of the engine without a policy. Written to results/c_envs.json and .md.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.bench.harness import ROOT, describe, header, say, spread, table, write
from gymnasium_solver.envs.engines.c.engine import Copies, load_program, shipped_names
from gymnasium_solver.envs.make import make_vector_env, training_env
from gymnasium_solver.fast.native.build import prefer_compiled
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import collector_for
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import load_config

NAME = "c_envs"
POOL = "CartPole-v1 on EnvPool"
ENGINES = {
    "C": ("c:cartpole", "auto"),
    "vector": ("CartPole-v1", "vector"),
    "EnvPool": ("CartPole-v1", "envpool"),
}
WORK = {
    "seed": 1, "n_envs": 64, "n_steps": 32, "batch_size": 512, "hidden_dims": [64, 64],
    "compile": "native", "normalize_obs": False, "normalize_reward": False, "gamma": 0.98,
    "eval_freq_epochs": None, "test_episodes": 1, "quiet": True,
    "early_stop_on_eval_threshold": False, "env_kwargs": {}, "spec": {}, "n_threads": 1,
}  # fmt: skip


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


def training_rate(engine: str, n_epochs: int, n_steps: int) -> float:
    """Thousands of steps in a second of a core's time: a training less one of half its length, so
    that start, compiling and tests do not count."""
    env_id, mode = ENGINES[engine]
    given: dict[str, Any] = {**WORK, "vectorization_mode": mode, "n_epochs": n_epochs}
    taken_s = []
    for n in (n_steps // 2, n_steps):
        config = load_config(f"{env_id}:ppo", overrides={**given, "max_env_steps": n})
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            train(config, runs_root=Path(folder))
        taken_s.append(time.process_time() - start)
    return n_steps / 2 / (taken_s[1] - taken_s[0]) / 1000


def rollout_rate(engine: str, n_rollouts: int = 100) -> float:
    """Thousands of steps in a second of a core's time of acting and stepping, without learning."""
    env_id, mode = ENGINES[engine]
    config = load_config(f"{env_id}:ppo", overrides={**WORK, "vectorization_mode": mode})
    prefer_compiled()
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    collector = collector_for(config, env, agent)
    clock = sum(collector.collect(0, None).env_steps for _ in range(3))  # compiles
    first, start = clock, time.process_time()
    for _ in range(n_rollouts):
        clock += collector.collect(clock, None).env_steps
    taken_s = time.process_time() - start
    collector.close()
    return (clock - first) / taken_s / 1000


def measured(repeats: int, n_steps: int) -> dict[str, Any]:
    """Rates by engine: of the engine alone, of rollouts, and of PPO by the passes over each."""
    turns, alone = range(repeats), dict[str, list[float]]()
    for name in shipped_names():
        alone[f"c:{name}"] = [engine_rate(name) for _ in turns]
    alone[POOL] = [pool_rate() for _ in turns]
    rollouts: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in turns:
        for engine, rates in rollouts.items():
            rates.append(rollout_rate(engine))
    training: dict[str, dict[str, list[float]]] = {}
    for n_epochs in (1, 4):
        for engine in ENGINES:  # compiles what the others share
            training_rate(engine, n_epochs, 8192)
        found = training[str(n_epochs)] = {engine: [] for engine in ENGINES}
        for _ in turns:
            for engine, rates in found.items():
                rates.append(training_rate(engine, n_epochs, n_steps))
                say(f"{n_epochs} passes, {engine}: {rates[-1]:.0f} k steps/s")
    return {"alone": alone, "rollouts": rollouts, "training": training}


def markdown(result: dict[str, Any]) -> str:
    alone = [(name, spread(rates, 2)) for name, rates in result["alone"].items()]
    about = (
        "Rates of the CPU time of one core, medians with the range. 64 environments, 32 steps, "
        "two layers of 64, one thread; ratios are taken turn by turn."
    )
    return "\n\n".join(
        [
            "# Environments in C",
            describe(result),
            about,
            table(("1,024 copies", "million steps/s"), alone),
            "Rollouts without learning:",
            compared(result["rollouts"]),
            *(
                part
                for n_epochs, found in result["training"].items()
                for part in (f"PPO, passes over each rollout: {n_epochs}", compared(found))
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    command = f"python -m benchmarks.c_envs --repeats {args.repeats} --steps {args.steps}"
    result = header(command) | {"benchmark": NAME} | measured(args.repeats, args.steps)
    write(args.out, NAME, result, markdown(result))
    say(markdown(result))


def compared(found: dict[str, list[float]]) -> str:
    """A table of rates by engine, and their ratios to EnvPool's."""
    lines = []
    for engine, rates in found.items():
        ratios = [own / pool for own, pool in zip(rates, found["EnvPool"], strict=True)]
        lines.append((engine, spread(rates), spread(ratios, 2)))
    return table(("engine", "thousand steps/s", "x EnvPool"), lines)


if __name__ == "__main__":
    main()
