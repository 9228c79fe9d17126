"""Training throughput against peers: the same algorithm, hyper-parameters and networks.

    gsolve bench --only training
    gsolve bench --only training --tasks sac

PPO and DQN on CartPole-v1 with rl-zoo's hyper-parameters, SAC on HalfCheetah-v5 with the defaults
of SB3 and sbx (a test compares our configs with peers/zoo.py), evaluation off. Steps/s exclude
start-up, random warm-up and compilation: they count from the same env step for all. The time from
the shell includes everything. Slow libraries get fewer env steps, which does not change the rate.

Each task is run twice: every library with the threads that it takes by itself, and every library
with one thread, pinned to one core where the system can (another core in each repeat).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.libraries import (
    CLEANRL,
    OURS,
    REJAX,
    SB3,
    SBX,
    How,
    bars,
    find,
    ratio,
    run_ours,
    run_peer,
    take_turns,
    threads_text,
)
from benchmarks.peers.zoo import WARM_STEPS
from gymnasium_solver.bench.harness import Options, cores, say, spread, table
from gymnasium_solver.chart_style import saved_figure

THREADING = {"default": None, "one": 1}


class Case(NamedTuple):
    title: str
    config: str  # ours, with the peers' hyper-parameters
    env_steps: int  # of ours, and of whoever is not in `peer_steps`
    quick_steps: int
    tasks: dict[str, str]  # by peer, what its script calls the same
    peer_steps: dict[str, int]
    threading: tuple[str, ...] = ("default", "one")


ZOO = "CartPole-v1:ppo"
CASES = {
    "ppo": Case(
        "PPO CartPole-v1",
        "benchmarks/configs/cartpole_zoo.yaml:ppo",
        100_000,
        6_000,
        {SB3: ZOO, SBX: ZOO, REJAX: "zoo", CLEANRL: "zoo"},
        {SB3: 25_000, SBX: 40_000, CLEANRL: 25_000},
    ),
    "dqn": Case(
        "DQN CartPole-v1",
        "benchmarks/configs/cartpole_zoo.yaml:dqn",
        8_000,
        5_000,
        {SB3: "CartPole-v1:dqn", SBX: "CartPole-v1:dqn"},
        {SB3: 4_500},
    ),
    "sac": Case(
        "SAC HalfCheetah-v5",
        "benchmarks/configs/halfcheetah_sb3.yaml:sac",
        1_500,
        1_200,
        {SB3: "HalfCheetah-v5:sac", SBX: "HalfCheetah-v5:sac"},
        {SB3: 1_000},
    ),
}

TASKS = tuple(CASES)


def measure(options: Options) -> list[dict[str, Any]]:
    """One row a run; in each repeat all sides in turn, in alternating order."""
    rows = []
    for repeat in range(options.repeats):
        for algo in options.chosen(CASES):
            for threading in CASES[algo].threading:
                turn = f"repeat {repeat + 1} of {options.repeats}, {algo}, threads: {threading}"
                say(f"training: {turn}")
                which = {"algo": algo, "repeat": repeat, "threading": threading}
                for row in _turn(algo, repeat, threading, options):
                    rows.append(which | row)
    return rows


def _turn(algo: str, repeat: int, threading: str, options: Options) -> list[dict[str, Any]]:
    case = CASES[algo]
    core = cores()[repeat % len(cores())] if threading == "one" else None
    how = How(seed=repeat + 1, n_threads=THREADING[threading], core=core)
    most = case.quick_steps if options.quick else case.env_steps
    flag = f"--max-env-steps={most}"
    sides: dict[str, Any] = {
        OURS: partial(run_ours, case.config, how, flag, warm_steps=WARM_STEPS[algo])
    }
    for name, task in case.tasks.items():
        steps = min(most, case.peer_steps.get(name, most))
        sides[name] = partial(run_peer, find(name, options), task, how, f"--steps={steps}")
    return list(take_turns(sides, flip=repeat % 2 == 1))


def sections(rows: Sequence[dict[str, Any]]) -> list[str]:
    done = [row for row in rows if "error" not in row]
    cells = []
    for algo in CASES:
        for threading in THREADING:
            group = [r for r in done if (r["algo"], r["threading"]) == (algo, threading)]
            for who in dict.fromkeys((OURS, *CASES[algo].tasks)):
                if runs := [row for row in group if row["who"] == who]:
                    cells.append(_cells(group, runs))
    failed = {f"- {r['who']}, {CASES[r['algo']].title}: {r['error']}" for r in rows if "error" in r}
    head = ("task", "library", "threads", "training, steps/s", "× SB3", "× sbx", "× rejax")
    warm = ", ".join(f"{steps:,} ({algo})" for algo, steps in WARM_STEPS.items())
    return [
        "## Training, the same work",
        "PPO and DQN with rl-zoo's hyper-parameters (PPO: 8 envs × 32 steps, batch 256, 20 passes, "
        "2×64; DQN: 128 updates of 64 after every 256 steps, 2×256), SAC with the defaults of SB3 "
        "and sbx (an update of 256 after every step, 2×256). Evaluation off on all sides. Steps/s "
        f"count from env step {warm} on, without start-up, random actions and compilation, which "
        "only rejax reports separately. The time from the shell includes everything, and for us "
        "also the run folder that the others do not write. Ratios are taken pair by pair, within "
        "the same number of threads. “On one core”: one thread each, and the process may use no "
        "other core.",
        table((*head, "shell to the end, s", "of it compiling", "env steps"), cells),
        *(["Missing:\n\n" + "\n".join(sorted(failed))] if failed else []),
    ]


def _cells(group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """A line of the table: one library's runs, out of a group with one task and one threading."""
    rates = [row["steps_per_s"] for row in runs if row["steps_per_s"]]
    compiling = [row["compile_s"] for row in runs if row.get("compile_s")]
    return (
        CASES[runs[0]["algo"]].title,
        runs[0]["who"],
        threads_text(runs),
        spread(rates) if rates else "–",
        *(ratio(group, runs, peer) for peer in (SB3, SBX, REJAX)),
        spread([row["wall_s"] for row in runs], 1),
        spread(compiling, 1) if compiling else "–",
        f"{max(row['env_steps'] for row in runs):,}",
    )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    done = [r for r in rows if r.get("steps_per_s") and r["threading"] == "default"]
    algos = [algo for algo in CASES if any(row["algo"] == algo for row in done)]
    n_slots = max(len({row["who"] for row in done if row["algo"] == algo}) for algo in algos)
    title, size = "Training, env steps a second (same work, default threads)", 0.9 + 0.36 * n_slots
    with saved_figure(path, len(algos), len(algos), (11, size), title) as axes:
        for ax, algo in zip(axes, algos, strict=True):
            rates: dict[str, list[float]] = {}
            for row in done:
                if row["algo"] == algo:
                    rates.setdefault(row["who"], []).append(row["steps_per_s"])
            medians = {who: float(np.median(values)) for who, values in rates.items()}
            order = sorted(medians, key=lambda who: -medians[who])
            values = [medians[who] for who in order]
            texts = [f"{value:,.0f}" for value in values]
            bars(ax, order, values, texts, ours=OURS, title=CASES[algo].title, n_slots=n_slots)
