"""Env-only steps/s by engine and number of envs: the engine used directly, and under our contract.

The actions are drawn beforehand and the same for all. Reset rows (NEXT_STEP autoreset) are not
counted, so a figure is real environment steps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.harness import say, spread, table
from gymnasium_solver.envs.make import make_vector_env

N_ACTION_BATCHES = 64


@dataclass(frozen=True)
class Case:
    env_id: str
    engine: str  # as in the config's vectorization_mode
    n_envs: int


FULL = [
    *(Case("CartPole-v1", engine, n) for n in (8, 64, 1024) for engine in ("envpool", "vector")),
    *(Case("CartPole-v1", "sync", n) for n in (8, 64)),
    Case("CartPole-v1", "async", 8),
    *(Case("LunarLander-v3", "envpool", n) for n in (8, 64)),
    *(Case("HalfCheetah-v5", engine, n) for n in (8, 64) for engine in ("envpool", "sync")),
    Case("HalfCheetah-v5", "async", 8),
]
QUICK = [Case("CartPole-v1", engine, 8) for engine in ("envpool", "vector", "sync")]


def measure(cases: list[Case], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """One row a case; all cases take their turn in each repeat, the two sides in changing order."""
    raw: dict[Case, list[float]] = {case: [] for case in cases}
    ours: dict[Case, list[float]] = {case: [] for case in cases}
    for repeat in range(repeats):
        say(f"engines: repeat {repeat + 1} of {repeats}, {len(cases)} cases")
        for case in cases:
            sides = [(raw, _rate_raw), (ours, _rate_ours)]
            for rates, rate in sides if repeat % 2 == 0 else reversed(sides):
                rates[case].append(rate(case, seconds))
    return [
        vars(case) | {"raw_steps_per_s": raw[case], "ours_steps_per_s": ours[case]}
        for case in cases
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    cells = [
        (
            row["env_id"],
            row["engine"],
            row["n_envs"],
            spread(row["raw_steps_per_s"]),
            spread(row["ours_steps_per_s"]),
            f"{np.median(row['ours_steps_per_s']) / np.median(row['raw_steps_per_s']):.2f}",
        )
        for row in rows
    ]
    return table(
        ("env", "engine", "envs", "used directly, steps/s", "under our contract", "ratio"), cells
    )


def _rate_ours(case: Case, seconds: float) -> float:
    env = make_vector_env(case.env_id, case.n_envs, vectorization_mode=case.engine)
    env.reset(seed=1)
    rate = _rate(env.step, _actions(env.action_space, case.n_envs), case.n_envs, seconds)
    env.close()
    return rate


def _rate_raw(case: Case, seconds: float) -> float:
    if case.engine == "envpool":
        import envpool

        env: Any = envpool.make_gymnasium(case.env_id, num_envs=case.n_envs, seed=1)
        env.reset()
        space = env.action_space
    else:
        mode = "vector_entry_point" if case.engine == "vector" else case.engine
        env = gymnasium.make_vec(case.env_id, case.n_envs, vectorization_mode=mode)
        env.reset(seed=1)
        space = env.single_action_space
    rate = _rate(env.step, _actions(space, case.n_envs), case.n_envs, seconds)
    env.close()
    return rate


def _actions(space: spaces.Space, n_envs: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    if isinstance(space, spaces.Discrete):
        drawn = rng.integers(space.n, size=(N_ACTION_BATCHES, n_envs)) + space.start
    else:
        assert isinstance(space, spaces.Box)
        shape = (N_ACTION_BATCHES, n_envs, *space.shape)
        drawn = rng.uniform(space.low, space.high, size=shape).astype(np.float32)
    return list(drawn)


def _rate(
    step: Callable[[np.ndarray], Any], actions: list[np.ndarray], n_envs: int, seconds: float
) -> float:
    for batch in actions:
        step(batch)
    ended = []
    start = time.perf_counter()
    deadline = start + seconds
    while (now := time.perf_counter()) < deadline:
        for batch in actions:
            outcome = step(batch)  # both sides: obs, reward, terminated, truncated, ...
            ended.append((outcome[2], outcome[3]))
    episodes = sum(int(np.count_nonzero(terminated | truncated)) for terminated, truncated in ended)
    return (len(ended) * n_envs - episodes) / (now - start)
