"""Steps per second of PPO with memory and with Dict observations, beside the plain network.

    .venv/bin/python -m benchmarks.memory_speed

CartPole-v1, 16 envs, rollouts of 128 rows, 4 passes in minibatches of 512, hidden layers of 64, one
thread, compiled, no evaluations, in alternating order. Measured in CPU seconds, which other
processes disturb less, from the eighth epoch on: the first ones record and compile. The best of
`--rounds` trainings. Also given as a share of the plain network's rate,
beside the multiply-adds of a forward pass: at the same width a GRU has three times as many. Writes
results/memory_speed.json and .md.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.config.schema import Config
from gymnasium_solver.training.observer import Observer

NAME = "memory_speed"
WARM_EPOCHS = 8
COMMON: dict[str, Any] = {
    "env_id": "CartPole-v1", "algo_id": "ppo", "seed": 1, "n_envs": 16, "n_steps": 128,
    "batch_size": 512, "n_epochs": 4, "eval_freq_epochs": None, "test_episodes": 1, "n_threads": 1,
    "normalize_obs": False, "normalize_reward": False, "checkpoint_freq_epochs": 10_000,
    # `auto` would compile the recurrent networks only: the plain one gains less from it in a run of
    # this length.
    "compile": "native",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gru": {"recurrent": "gru"},
    "lstm": {"recurrent": "lstm"},
    "rnn": {"recurrent": "rnn"},
    "gru, sequences of 32": {"recurrent": "gru", "sequence_length": 32},
    "gru of 32 units": {"recurrent": "gru", "recurrent_dim": 32},
    "lstm of 32 units": {"recurrent": "lstm", "recurrent_dim": 32},
    "Dict observation": {"env_id": "Probe/DictObs-v0"},
    "one array, the same env": {"env_id": "Probe/ObsActionReward-v0"},
}


class Epochs(Observer):
    """CPU time and env steps after each epoch."""

    def __init__(self) -> None:
        self.clocks: list[tuple[float, int]] = []

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.clocks.append((time.process_time(), row["env_steps"]))

    def us_a_step(self) -> float:
        """After the first epochs. The mean: every second epoch logs details, which take longer."""
        (now, before), (then, after) = self.clocks[WARM_EPOCHS], self.clocks[-1]
        return 1e6 * (then - now) / (after - before)


def configured(fields: dict[str, Any], env_steps: int) -> Config:
    from gymnasium_solver.training.prepare import build_config

    return build_config({**COMMON, **fields, "max_env_steps": env_steps})


def measure(fields: dict[str, Any], env_steps: int) -> float:
    """CPU microseconds a step of one training."""
    from gymnasium_solver.training.loop import train

    epochs = Epochs()
    with tempfile.TemporaryDirectory() as folder:
        train(configured(fields, env_steps), runs_root=Path(folder), observers=[epochs])
    return epochs.us_a_step()


def multiply_adds(fields: dict[str, Any]) -> int:
    """Of a forward pass of actor and critic, for one observation."""
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.nets.describe import describe_network
    from gymnasium_solver.training.agents import build_agent

    config = configured(fields, 1)
    env = env_from_config(config, 1)
    try:
        agent = build_agent(config, env.observation_space, env.action_space)
        return sum(row.multiply_adds for row in describe_network(agent.net, env.reset(0), 0))
    finally:
        env.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="memory_speed.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: dict[str, list[float]] = {name: [] for name in args.only}
    for round_ in range(args.rounds):
        order = args.only if round_ % 2 == 0 else args.only[::-1]
        for name in order:
            own = measure(CASES[name], args.env_steps)
            found[name].append(own)
            say(f"memory_speed: round {round_ + 1}, {name}: {1e6 / own:,.0f} steps/s")
    result = header("python -m benchmarks.memory_speed")
    result |= {
        "benchmark": NAME,
        "steps_per_cpu_s": {name: 1e6 / min(us) for name, us in found.items()},
        "multiply_adds": {name: multiply_adds(CASES[name]) for name in args.only},
    }
    write(args.out, NAME, result, markdown(result))
    print(markdown(result))


def markdown(result: dict[str, Any]) -> str:
    rate: dict[str, float] = result["steps_per_cpu_s"]
    work: dict[str, int] = result.get("multiply_adds", {})  # older results have none
    against = dict.fromkeys(rate, "plain")
    against["Dict observation"] = against["one array, the same env"] = "one array, the same env"
    heads = ["network", "steps per CPU second", "share"]
    about = (
        "PPO on CartPole-v1, 16 envs, one thread; share: of the network without memory or parts."
    )
    if work:
        heads += ["multiply-adds", "ratio"]
        about += (
            " Multiply-adds: of a forward pass for one observation. The plain network has two "
            "layers of 64 for the actor and two for the critic; a network with memory has two for "
            "both, and then 64 units of memory. With updates alone the share would be one by the "
            "ratio."
        )
    rows = []
    for name, own in rate.items():
        row = [name, f"{own:,.0f}", _ratio(rate, name, against[name])]
        if work:
            row += [f"{work[name]:,}", _ratio(work, name, against[name])]
        rows.append(row)
    return "\n\n".join(["# Memory", describe(result), about, table(heads, rows)])


def _ratio(found: Mapping[str, float], name: str, other: str) -> str:
    return f"{found[name] / found[other]:.2f}" if other in found else "–"


if __name__ == "__main__":
    main()
