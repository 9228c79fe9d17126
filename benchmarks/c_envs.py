"""Environments in C: the engine alone, and PPO on it beside EnvPool and Gymnasium's CartPole.

    .venv/bin/python -m benchmarks.c_envs                       # five turns, a few minutes
    .venv/bin/python -m benchmarks.c_envs --repeats 1 --steps 100000
    .venv/bin/python -m benchmarks.c_envs --base ../older       # also EnvPool in another checkout

The same work on each engine: 64 environments, 32 steps, two layers of 64, one thread, one or four
passes over the rollout. The engines take turns, ratios are taken turn by turn, and medians and
ranges are shown. Rates are of CPU time, which other processes disturb little. The first table is
of the engine without a policy. `--base`: a checkout of an older commit, whose EnvPool trains in the
same turns (git worktree add ../older aae2af4). Written to results/c_envs.json and .md.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import training_rate
from gymnasium_solver.bench.harness import (
    ROOT,
    describe,
    header,
    own_environment,
    say,
    spread,
    table,
    write,
)
from gymnasium_solver.envs.engines.c.engine import Copies, load_program, shipped_names
from gymnasium_solver.envs.make import make_vector_env, training_env
from gymnasium_solver.fast.native.build import prefer_compiled
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import collector_for
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


def training_rates(engine: str, n_epochs: int, n_steps: int, base: Path | None = None) -> float:
    """Thousands of steps in a second of CPU time of a training, of this checkout or of another."""
    env_id, mode = ENGINES[engine]
    given: dict[str, Any] = {**WORK, "vectorization_mode": mode, "n_epochs": n_epochs}
    target, fields = f"{env_id}:ppo", given | {"max_env_steps": n_steps}
    if base is None:
        return training_rate.training_rate(target, fields) / 1000
    command = [sys.executable, training_rate.__file__, target, json.dumps(fields)]
    environment = own_environment() | {"PYTHONPATH": str(base)}
    done = subprocess.run(command, cwd=base, env=environment, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_s"]) / 1000


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


def measured(repeats: int, n_steps: int, base: Path | None) -> dict[str, Any]:
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
    older = {} if base is None else {f"EnvPool at {_commit_of(base)}": ("EnvPool", base)}
    sides: dict[str, tuple[str, Path | None]] = {engine: (engine, None) for engine in ENGINES}
    for n_epochs in (1, 4):
        found = training[str(n_epochs)] = {side: [] for side in sides | older}
        for _ in turns:
            for side, (engine, checkout) in (sides | older).items():
                found[side].append(training_rates(engine, n_epochs, n_steps, checkout))
                say(f"{n_epochs} passes, {side}: {found[side][-1]:.0f} k steps/s")
    return {"alone": alone, "rollouts": rollouts, "training": training}


def _commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


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
    parser.add_argument("--base", type=Path, help="a checkout of an older commit")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    command = f"python -m benchmarks.c_envs --repeats {args.repeats} --steps {args.steps}"
    if args.base is not None:
        command += " --base CHECKOUT"
    found = measured(args.repeats, args.steps, args.base and args.base.resolve())
    result = header(command) | {"benchmark": NAME} | found
    write(args.out, NAME, result, markdown(result))
    say(markdown(result))


def compared(found: dict[str, list[float]]) -> str:
    """A table of rates by engine, and their ratios to those of EnvPool, here and at the base."""
    pools = [side for side in found if side.startswith("EnvPool")]
    lines = []
    for side, rates in found.items():
        ratios = [
            spread([own / pool for own, pool in zip(rates, found[to], strict=True)], 2)
            for to in pools
        ]
        lines.append((side, spread(rates), *ratios))
    return table(("engine", "thousand steps/s", *(f"x {pool}" for pool in pools)), lines)


if __name__ == "__main__":
    main()
