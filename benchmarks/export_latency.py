"""How long one action takes: the exported files beside eager torch, this package and SB3.

    .venv/bin/python -m benchmarks.export_latency --peers-python .venv-peers/bin/python

One observation at a time, one thread. `torch` is the network in eager mode as a user would write it
(array to tensor, forward, argmax or scale, back to an array), `act` is `agent.act`, `onnx` is
onnxruntime, `c` the compiled header called through ctypes. SB3's `predict` is that of an untrained
model with the same layers. Raw figures go to results/export_latency.json, the table to
results/export_latency.md.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.share.export.c_header import CompiledPolicy
from gymnasium_solver.share.export.deployed import deployed_policy, observe
from gymnasium_solver.share.export.export_run import OnnxPolicy, export_run
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent, run_treatment
from gymnasium_solver.training.prepare import load_config

NAME = "export_latency"
TASKS = {
    "CartPole-v1:ppo": ("PPO", {"policy_kwargs": {"net_arch": [64, 64]}}),
    "Pendulum-v1:sac": ("SAC", {"policy_kwargs": {"net_arch": [256, 256]}}),
    "CartPole-v1:dqn": ("DQN", {}),
}
SB3 = """
import json, sys, time
import numpy as np, torch, gymnasium, stable_baselines3 as sb3
torch.set_num_threads(1)
env_id, algo, kwargs, n = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
model = getattr(sb3, algo)("MlpPolicy", gymnasium.make(env_id), device="cpu", **kwargs)
obs = model.observation_space.sample()
for _ in range(50): model.predict(obs, deterministic=True)
times = []
for _ in range(n):
    start = time.perf_counter(); model.predict(obs, deterministic=True)
    times.append(time.perf_counter() - start)
print(json.dumps([float(np.median(times)) * 1e6, sb3.__version__]))
"""


def microseconds(step: Callable[[], Any], n: int) -> float:
    """Median time of a call."""
    for _ in range(50):
        step()
    times = []
    for _ in range(n):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


def measure(task: str, n: int, root: Path) -> dict[str, float]:
    few = {"max_env_steps": 2000, "eval_episodes": 1, "test_episodes": 1, "seed": 1}
    run = loop.train(load_config(task, overrides=few), runs_root=root)
    agent = load_agent(run)
    treatment = run_treatment(run, agent.config, agent.observation_space)
    observed = observe(agent.config, agent, treatment, 64)
    policy, obs = deployed_policy(agent, treatment, False), observed.steps[0].obs
    assert isinstance(obs, np.ndarray)
    exported = export_run(str(run.path), root, "onnx")
    header_file = export_run(str(run.path), root, "c")
    runs = OnnxPolicy(Path(exported.path).read_bytes())
    text = Path(header_file.path).read_text(encoding="utf-8")
    act = CompiledPolicy(text, policy, Path(tempfile.mkdtemp(dir=root)))
    row, one = obs[0], obs[:1]

    @torch.no_grad()
    def eager() -> np.ndarray:
        return policy(torch.from_numpy(row[None]))[0].numpy()

    steps: dict[str, Callable[[], Any]] = {
        "torch": eager,
        "act": lambda: agent.act(row),
        "onnx": lambda: runs({"obs": one}),
        "c": lambda: act(row, None),
    }
    return {name: microseconds(step, n) for name, step in steps.items()}


def sb3(python: Path, task: str, n: int) -> tuple[float, str] | None:
    """SB3's predict in its own Python; None without it."""
    env_id, (algo, kwargs) = task.partition(":")[0], TASKS[task]
    command = [str(python), "-c", SB3, env_id, algo, json.dumps(kwargs), str(n)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"SB3 left out: {error}")
        return None
    time_us, version = json.loads(done.stdout.splitlines()[-1])
    return time_us, version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {}
    peers: dict[str, str] = {}
    for task in TASKS:
        with tempfile.TemporaryDirectory() as folder:
            results[task] = measure(task, args.steps, Path(folder))
        if (peer := sb3(args.peers_python, task, args.steps)) is not None:
            results[task]["sb3"], peers["stable-baselines3"] = peer
        say(f"{task}: " + ", ".join(f"{k} {v:.1f} us" for k, v in results[task].items()))
    result = header("python -m benchmarks.export_latency")
    result |= {"benchmark": NAME, "us_per_action": results}
    result["versions"] |= peers
    page = markdown(result)
    write(args.out, NAME, result, page)
    print(page)


def markdown(result: dict[str, Any]) -> str:
    columns = {"torch": "eager torch", "act": "agent.act", "onnx": "ONNX", "c": "C"}
    columns["sb3"] = "SB3 predict"
    found = result["us_per_action"]
    rows = [[task, *(_cell(found[task].get(name)) for name in columns)] for task in found]
    title = "# The time of one action"
    return "\n\n".join([title, describe(result), table(["", *columns.values()], rows)])


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"


if __name__ == "__main__":
    main()
