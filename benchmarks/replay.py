"""Microseconds a call of replay, ours against cpprb's C++ buffers where cpprb can be imported.

    .venv/bin/python -m benchmarks.replay

100,000 transitions of 17 floats and 6 actions, one thread, n-step 1, best of many short rounds in
alternating order. A sample is gathered and ready to learn from: obs, actions, reward, next_obs and
the end of the episode, with weights where prioritised. cpprb is no dependency of this project: to
compare, put it where Python finds it (`pip install --target DIR cpprb`, PYTHONPATH=DIR).
"""

import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.bench.harness import header, table
from gymnasium_solver.data.memory import Memory, Sample, split
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_kind

CAPACITY, N_OBS, N_ACTIONS = 100_000, 17, 6
ACTIONS = action_kind(spaces.Box(-1, 1, (N_ACTIONS,), np.float32))
N_ROUNDS, N_CALLS = 60, 60

Calls = dict[str, Callable[[], Any]]


def rollout(n_steps: int, n_envs: int, n_obs: int = N_OBS) -> Rollout:
    rng = np.random.default_rng(n_envs)
    rows = Rollout.allocate(n_steps, n_envs, spaces.Box(-1, 1, (n_obs,), np.float32), ACTIONS)
    rows.obs = rng.random((n_steps + 1, n_envs, n_obs)).astype(np.float32)
    rows.actions[:] = rng.random(rows.actions.shape)
    rows.reward[:], rows.valid[:] = rng.random(rows.reward.shape), True
    rows.valid[199::200] = False  # the reset rows of episodes of 199 steps
    rows.is_first[0], rows.is_first[200::200] = True, True
    return rows


def memory(batch_size: int, prioritized: bool, n_envs: int = 1, n_obs: int = N_OBS) -> Memory:
    box = spaces.Box(-1, 1, (n_obs,), np.float32)
    made = Memory(
        Replay(CAPACITY, n_envs, box, ACTIONS),
        n_step=1,
        gamma=0.99,
        batch_size=batch_size,
        rng=np.random.default_rng(0),
        prioritized=prioritized,
    )
    made.add(rollout(CAPACITY // n_envs + 1, n_envs, n_obs))
    errors = np.random.default_rng(1).random(CAPACITY)
    made.update_priorities(np.arange(CAPACITY), errors)
    return made


def draw(made: Memory, n_batches: int) -> list[Sample]:
    found = made.samples(n_batches, beta=0.5)
    return [batch for sample in found for batch in split(sample, made.batch_size)]


def our_calls() -> Calls:
    calls: Calls = {}
    for size in (64, 256):
        uniform, prioritized = memory(size, False), memory(size, True)
        index = next(prioritized.samples(1)).index
        errors = np.random.default_rng(2).random(size).astype(np.float32)
        calls |= {
            f"uniform sample {size}": partial(draw, uniform, 1),
            f"prioritised sample {size}": partial(draw, prioritized, 1),
            f"prioritised update {size}": partial(prioritized.update_priorities, index, errors),
        }
    for n_envs in (1, 8):
        for name, is_prioritized in (("uniform", False), ("prioritised", True)):
            made, rows = memory(64, is_prioritized, n_envs), rollout(1, n_envs)
            calls[f"{name} add of {n_envs}"] = partial(made.add, rows)
    return calls


def our_other_calls() -> Calls:
    """What cpprb has no like of, or the smallest sizes."""
    small, many = memory(64, False, n_obs=4), memory(64, False, n_obs=4)
    row = rollout(1, 1, n_obs=4)
    three = memory(256, False)
    three.n_step = 3
    return {
        "add of 1, obs 4": partial(small.add, row),
        "128 uniform samples of 64, obs 4": partial(draw, many, 128),
        "uniform sample 256, n-step 3": partial(draw, three, 1),
    }


def cpprb_calls() -> Calls:
    try:
        cpprb = import_module("cpprb")
    except ImportError:
        return {}
    rng = np.random.default_rng(0)
    shapes: dict[str, dict[str, int]] = {
        "obs": {"shape": N_OBS},
        "act": {"shape": N_ACTIONS},
        "rew": {},
        "next_obs": {"shape": N_OBS},
        "done": {},
    }

    def rows(n: int) -> dict[str, np.ndarray]:
        width = {name: shape.get("shape", 1) for name, shape in shapes.items()}
        return {name: rng.random((n, size), np.float32) for name, size in width.items()}

    uniform = cpprb.ReplayBuffer(CAPACITY, shapes)
    prioritized = cpprb.PrioritizedReplayBuffer(CAPACITY, shapes, alpha=0.5)
    calls: Calls = {}
    for buffer in (uniform, prioritized):
        buffer.add(**rows(CAPACITY))
    prioritized.update_priorities(np.arange(CAPACITY), rng.random(CAPACITY))
    for size in (64, 256):
        index = prioritized.sample(size, 0.5)["indexes"].copy()  # it lies in the buffer's memory
        errors = rng.random(size)
        calls |= {
            f"uniform sample {size}": partial(uniform.sample, size),
            f"prioritised sample {size}": partial(prioritized.sample, size, 0.5),
            f"prioritised update {size}": partial(prioritized.update_priorities, index, errors),
        }
    for n_envs in (1, 8):
        given = rows(n_envs)
        calls[f"uniform add of {n_envs}"] = partial(uniform.add, **given)
        calls[f"prioritised add of {n_envs}"] = partial(prioritized.add, **given)
    return calls


def measure(sides: dict[str, Calls]) -> dict[str, dict[str, float]]:
    """Microseconds a call, by side and name."""
    best: dict[str, dict[str, float]] = {side: {} for side in sides}
    for _ in range(N_ROUNDS):
        for name in sides["ours"]:
            for side, calls in sides.items():
                if name in calls:
                    us = time_call(calls[name])
                    best[side][name] = min(us, best[side].get(name, us))
    return best


def time_call(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(N_CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / N_CALLS


def main() -> None:
    sides = {"ours": our_calls() | our_other_calls(), "cpprb": cpprb_calls()}
    found = measure(sides)
    print(json.dumps(header("python -m benchmarks.replay") | {"us_a_call": found}, indent=1))
    lines = []
    for name, us in found["ours"].items():
        theirs = found["cpprb"].get(name)
        cells = ("", "") if theirs is None else (f"{theirs:.1f}", f"{us / theirs:.2f}")
        lines.append((name, f"{us:.1f}", *cells))
    print(table(("call", "ours, us", "cpprb, us", "ratio"), lines))


if __name__ == "__main__":
    main()
