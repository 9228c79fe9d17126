"""Steps per second of PPO with memory and with Dict observations, beside the plain network.

    .venv/bin/python -m benchmarks.memory_speed

CartPole-v1, 16 envs, rollouts of 128 rows, 4 passes in minibatches of 512, hidden layers of 64, one
thread, compiled, no evaluations, in alternating order, the best of `--rounds`. Measured in CPU
seconds, which other processes disturb less, as the difference between a long training and one of
half its length: the start of the process and the recording of gradients are not in it. Also given
as a share of the plain network's rate. Writes results/memory_speed.json and .md.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write

NAME = "memory_speed"
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
    "Dict observation": {"env_id": "Probe/DictObs-v0"},
    "one array, the same env": {"env_id": "Probe/ObsActionReward-v0"},
}


def measure(fields: dict[str, Any], env_steps: int) -> float:
    """CPU seconds of one training."""
    from gymnasium_solver.training.loop import train
    from gymnasium_solver.training.prepare import build_config

    config = build_config({**COMMON, **fields, "max_env_steps": env_steps})
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.process_time()
        train(config, runs_root=Path(folder))
        return time.process_time() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="memory_speed.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    best: dict[str, float] = {}
    for round_ in range(args.rounds):
        for name, fields in CASES.items():
            half_s = measure(fields, args.env_steps // 2)
            cpu_s = 2 * (measure(fields, args.env_steps) - half_s)
            best[name] = min(best.get(name, cpu_s), cpu_s)
            say(f"memory_speed: round {round_ + 1}, {name}: {args.env_steps / cpu_s:,.0f} steps/s")
    rate = {name: args.env_steps / cpu_s for name, cpu_s in best.items()}
    result = header("python -m benchmarks.memory_speed")
    result |= {"benchmark": NAME, "steps_per_cpu_s": rate}
    write(args.out, NAME, result, markdown(result))
    print(markdown(result))


def markdown(result: dict[str, Any]) -> str:
    rate: dict[str, float] = result["steps_per_cpu_s"]
    against = dict.fromkeys(rate, "plain")
    against["Dict observation"] = against["one array, the same env"] = "one array, the same env"
    rows = [(name, f"{own:,.0f}", f"{own / rate[against[name]]:.2f}") for name, own in rate.items()]
    about = (
        "PPO on CartPole-v1, 16 envs, one thread; share: of the network without memory or parts."
    )
    shown = table(["network", "steps per CPU second", "share"], rows)
    return "\n\n".join(["# Memory", describe(result), about, shown])


if __name__ == "__main__":
    main()
