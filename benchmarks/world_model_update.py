"""One update of the world models, TD-MPC2 and DreamerV3, by size and form, in milliseconds.

    python -m benchmarks.world_model_update                     # on the GPU if there is one
    python -m benchmarks.world_model_update --device cpu --only dreamerv3:1m --repeats 5
    python -m benchmarks.world_model_update --bf16 --out build/world_models.json

Forms: eager is plain torch; auto is what a training takes, on a GPU the whole update as one CUDA
graph; fused also fuses its kernels (DreamerV3: those of a row and of an imagined step), which takes
up to a minute first. Observations are 24 numbers and actions 6, as in WalkerWalk. DreamerV3 learns
from 16 sequences of 64 rows, TD-MPC2 from 256 subsequences of 3 steps, as in their papers. Sampling
the replay is part of an update.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config

OBS, ACTIONS = spaces.Box(-9.0, 9.0, (24,), np.float32), spaces.Box(-1.0, 1.0, (6,), np.float32)
MODELS = ("tdmpc2:1M", "tdmpc2:5M", "dreamerv3:1m", "dreamerv3:12m")
COMPILE = {"eager": False, "auto": "auto", "fused": "fused"}
ROWS = 2000
WARM_UP = 6  # updates; a graph is captured after a few


def agent_of(model: str, form: str, device: str, bf16: bool) -> Any:
    """A learner with a replay of random steps."""
    algo_id, size = model.split(":")
    config = build_config(
        {
            "env_id": "WalkerWalk-v1", "algo_id": algo_id, "model_size": size, "seed": 0,
            "buffer_size": ROWS, "learning_starts": 1, "device": device, "bf16": bf16,
            "compile": COMPILE[form], "max_env_steps": 100_000,
        }
    )  # fmt: skip
    agent: Any = build_agent(config, OBS, ACTIONS)
    rng = np.random.default_rng(0)
    rollout: Any = Rollout.allocate(ROWS - 1, 1, OBS, agent.actions)
    rollout.obs[...] = rng.normal(size=rollout.obs.shape)
    rollout.actions[...] = rng.uniform(-1.0, 1.0, rollout.actions.shape)
    rollout.reward[...] = rng.random(rollout.reward.shape)
    rollout.valid[...] = True
    rollout.is_first[0] = True
    policy = agent.policy
    for name, part in policy.recorded_carry(policy.initial_carry(1)).items():
        rollout.carry[name] = np.zeros((ROWS, *part.shape), part.dtype)
    agent.remember(rollout)
    return agent


def milliseconds(agent: Any, repeats: int) -> tuple[float, float]:
    """Of an update: the mean over all, and the median of single ones."""
    hp, is_cuda = agent.scheduled_values(0, 1), agent.device.type == "cuda"
    taken = []
    for i in range(WARM_UP + repeats):
        begun = time.perf_counter()
        agent.program(agent.samples(1, hp), hp)
        if is_cuda:
            torch.cuda.synchronize()
        if i >= WARM_UP:
            taken.append(1000 * (time.perf_counter() - begun))
    return float(np.mean(taken)), float(np.median(taken))


def measured(model: str, form: str, device: str, bf16: bool, repeats: int) -> dict[str, Any]:
    begun = time.perf_counter()
    agent = agent_of(model, form, device, bf16)
    mean, median = milliseconds(agent, repeats)
    return {
        "model": model,
        "form": form,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "bf16": bf16,
        "parameters": sum(p.numel() for p in agent.net.parameters()),
        "update_ms": mean,
        "median_ms": median,
        "updates_per_s": 1000 / mean,
        "one_graph": bool(agent.program._launches),
        "why_not": agent.program.failure,
        "total_s": time.perf_counter() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--forms", nargs="+", default=["eager", "auto"], choices=list(COMPILE))
    parser.add_argument("--bf16", action="store_true", help="compute losses in bfloat16")
    parser.add_argument("--repeats", type=int, default=30, help="updates that are timed")
    parser.add_argument("--out", type=Path, help="also write the results as JSON")
    args = parser.parse_args()
    results = []
    for model in args.only:
        for form in args.forms:
            found = measured(model, form, args.device, args.bf16, args.repeats)
            results.append(found)
            kind = "one graph" if found["one_graph"] else found["why_not"] or "no graph"
            print(
                f"{model:14} {form:6} {found['update_ms']:9.2f} ms "
                f"{found['updates_per_s']:8.1f} updates/s  {found['parameters']:,} parameters, "
                f"{kind}", flush=True,
            )  # fmt: skip
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
