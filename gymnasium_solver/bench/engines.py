"""Env-only steps/s by engine and number of envs: the engine used directly, and under our contract.

The actions are drawn beforehand and are the same for all. Reset rows (NEXT_STEP autoreset) are not
counted, so the figures are real environment steps. The two sides take turns in short slices, so
that a busy moment of the machine affects both; their ratio is the cost of the contract.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from gymnasium_solver.bench.harness import Options, say, spread, table
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import GsolveError, first_line

N_ACTION_BATCHES = 64
N_SLICES = 5
AT_MOST_LOST = 0.05  # share of EnvPool's own speed, at 8 and 64 envs


class Case(NamedTuple):
    env_id: str
    engine: str  # as in the config's vectorization_mode
    n_envs: int


FULL = [
    *(Case("CartPole-v1", engine, n) for n in (8, 64, 1024) for engine in ("envpool", "vector")),
    *(Case("CartPole-v1", "sync", n) for n in (8, 64)),
    Case("CartPole-v1", "async", 8),
    *(Case("LunarLander-v3", "envpool", n) for n in (8, 64)),
    *(Case("HalfCheetah-v5", engine, n) for n in (8, 64) for engine in ("envpool", "sync")),
]
QUICK = [Case("CartPole-v1", engine, 8) for engine in ("envpool", "vector", "sync")]


def measure(options: Options) -> list[dict[str, Any]]:
    """One row per case; all cases take turns in each repeat."""
    cases, slice_s = (QUICK, 0.05) if options.quick else (FULL, 0.2)
    rows: list[dict[str, Any]] = [
        case._asdict() | {"raw_steps_per_s": [], "ours_steps_per_s": []} for case in cases
    ]
    for repeat in range(options.repeats):
        say(f"engines: repeat {repeat + 1} of {options.repeats}, {len(cases)} cases")
        for case, row in zip(cases, rows, strict=True):
            if "missing" in row:
                continue
            try:
                raw, ours = _rates(case, slice_s, flip=repeat % 2 == 1)
                row["raw_steps_per_s"].append(raw)
                row["ours_steps_per_s"].append(ours)
            except (GsolveError, ImportError, gymnasium.error.Error) as error:
                row["missing"] = first_line(error)
    return rows


def sections(rows: list[dict[str, Any]]) -> list[str]:
    cells = [
        (
            *(row["env_id"], row["engine"], row["n_envs"], spread(row["raw_steps_per_s"])),
            *(spread(row["ours_steps_per_s"]), f"{ratio(row):.2f}"),
        )
        for row in rows
        if "missing" not in row
    ]
    missing = [
        f"- {row['env_id']} on {row['engine']}: {row['missing']}"
        for row in rows
        if "missing" in row
    ]
    head = ("env", "engine", "envs", "used directly, steps/s", "under our contract", "ratio")
    return [
        "## Environment engines, no learning",
        table(head, cells),
        verdict(rows),
        *(["Missing:\n\n" + "\n".join(missing)] if missing else []),
    ]


def ratio(row: dict[str, Any]) -> float:
    """Median over pairs of our speed divided by the engine's."""
    pairs = zip(row["ours_steps_per_s"], row["raw_steps_per_s"], strict=True)
    return float(np.median([ours / raw for ours, raw in pairs]))


def verdict(rows: list[dict[str, Any]]) -> str:
    """Whether the contract stays within its limit."""
    judged = [
        row
        for row in rows
        if row["engine"] == "envpool" and row["n_envs"] in (8, 64) and "missing" not in row
    ]
    slow = [row for row in judged if ratio(row) < 1 - AT_MOST_LOST]
    bar = f"EnvPool with 8 and 64 envs may lose at most {AT_MOST_LOST:.0%} under our contract: "
    if not judged:
        return bar + "not measured."
    if not slow:
        return bar + f"kept in all {len(judged)} cases."
    names = ", ".join(f"{row['env_id']} × {row['n_envs']} ({ratio(row):.2f})" for row in slow)
    return bar + f"not kept by {names}."


def _rates(case: Case, slice_s: float, flip: bool) -> tuple[float, float]:
    """Steps/s of the engine itself and of ours: medians over alternating slices."""
    raw, space = _raw_env(case)
    ours = make_vector_env(case.env_id, case.n_envs, vectorization_mode=case.engine)
    ours.reset(seed=1)
    with closing(raw), closing(ours):
        sides: list[tuple[Callable[..., Any], list[np.ndarray], list[float]]] = [
            (raw.step, _actions(space, case.n_envs), []),
            (ours.step, _actions(ours.action_space, case.n_envs), []),
        ]
        for i in range(N_SLICES):
            for step, actions, rates in sides[::-1] if (i % 2 == 1) != flip else sides:
                rates.append(_rate(step, actions, case.n_envs, slice_s))
    return float(np.median(sides[0][2])), float(np.median(sides[1][2]))


def _raw_env(case: Case) -> tuple[Any, spaces.Space]:
    """The engine as in its own documentation, and the action space of one env."""
    if case.engine == "envpool":
        import envpool

        env: Any = envpool.make_gymnasium(case.env_id, num_envs=case.n_envs, seed=1)
        env.reset()
        return env, env.action_space
    mode = "vector_entry_point" if case.engine == "vector" else case.engine
    env = gymnasium.make_vec(case.env_id, case.n_envs, vectorization_mode=mode)
    env.reset(seed=1)
    return env, env.single_action_space


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
    for batch in actions[:8]:  # warm up: the other side has used the caches
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
