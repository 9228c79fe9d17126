"""PPO on CartPole-v1 against peers, as processes started from the shell.

Throughput: the same work (rl-zoo hyper-parameters, evaluation off) on both sides. Solved: what a
user gets out of the box, our tuned config against the zoo's, under one stopping rule: a greedy
evaluation of the same number of episodes, after the same number of env steps, reaches 475.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import GSOLVE, FailedProcess, can_pin, cores, say, spread, table, timed
from gymnasium_solver.runs.query import get_metrics

ZOO_CONFIG = "benchmarks/configs/cartpole_zoo.yaml:ppo"
TUNED_CONFIG = "CartPole-v1:ppo"
SB3_SCRIPT = "benchmarks/peers/sb3_ppo.py"
THRESHOLD = 475.0
THREADS = {"one": 1, "default": None}


@dataclass(frozen=True)
class Peer:
    """A library to compare with: its interpreter, or why there is none."""

    name: str
    python: str | None
    versions: dict[str, str]
    missing: str | None = None

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "versions": self.versions, "missing": self.missing}


def find_sb3(python: Path) -> Peer:
    if not python.exists():
        return Peer("SB3", None, {}, "its environment is not installed (make peers)")
    try:
        _, said = timed([str(python), SB3_SCRIPT, "--versions"])
    except FailedProcess as error:
        return Peer("SB3", None, {}, str(error))
    return Peer("SB3", str(python), json.loads(said)["versions"])


# --- throughput


def throughput(sb3: Peer, repeats: int, env_steps: int) -> list[dict[str, Any]]:
    """One row a run, both sides in turn in each repeat."""
    rows = []
    for repeat in range(repeats):
        for threads, n_threads in THREADS.items():
            core = cores()[repeat % len(cores())] if threads == "one" else None
            sides: dict[str, Callable[[], dict[str, Any]]] = {
                "gymnasium-solver": lambda: _ours(
                    ZOO_CONFIG, repeat + 1, n_threads, core, f"--max-env-steps={env_steps}"
                )
            }
            if sb3.python:
                sides["SB3"] = lambda: _sb3(
                    sb3, repeat + 1, n_threads, core, f"--steps={env_steps}"
                )
            for who in sides if repeat % 2 == 0 else reversed(sides):
                say(f"throughput: repeat {repeat + 1} of {repeats}, {threads} thread, {who}")
                run = sides[who]()
                rows.append({"who": who, "threads": threads, "repeat": repeat} | run)
    return rows


def throughput_markdown(rows: list[dict[str, Any]], env_steps: int) -> str:
    cells = []
    for threads in THREADS:
        chosen = [row for row in rows if row["threads"] == threads]
        for who in dict.fromkeys(row["who"] for row in chosen):
            runs = [row for row in chosen if row["who"] == who]
            rate = [row["steps_per_s"] for row in runs]
            wall = [row["wall_s"] for row in runs]
            cells.append(
                (
                    who,
                    _threads_text(threads, runs),
                    spread(rate),
                    _ratio(chosen, who, "steps_per_s"),
                    spread(wall, 1),
                    _ratio(chosen, who, "wall_s"),
                )
            )
    head = ("library", "threads", "training, steps/s", "× SB3")
    return table((*head, f"shell to {env_steps:,} steps, s", "× faster than SB3"), cells)


def _threads_text(threads: str, runs: list[dict[str, Any]]) -> str:
    if threads == "one":
        return "1, on one core" if can_pin() else "1"
    used = sorted({row["torch_threads"] for row in runs if row.get("torch_threads")})
    return "its default" + (f" ({', '.join(map(str, used))})" if used else "")


def _ratio(rows: list[dict[str, Any]], who: str, field: str) -> str:
    """Ours against SB3, pair by pair over the repeats; above 1 is faster."""
    ours = {row["repeat"]: row[field] for row in rows if row["who"] == who}
    theirs = {row["repeat"]: row[field] for row in rows if row["who"] == "SB3"}
    shared = ours.keys() & theirs.keys()
    if who == "SB3" or not shared:
        return "1" if theirs and who == "SB3" else "–"
    ratios = [ours[k] / theirs[k] for k in sorted(shared)]
    return spread([1 / r for r in ratios] if field == "wall_s" else ratios, 1)


# --- shell to solved


def stopping_rule() -> dict[str, int]:
    """Episodes and cadence of our tuned config's evaluations, in env steps."""
    _, said = timed([GSOLVE, "show", TUNED_CONFIG, "--json"])
    config = json.loads(said)
    per_epoch = config["n_envs"] * config["n_steps"]
    warmup = config["eval_warmup_epochs"]
    if 0 < warmup < 1:
        warmup *= config["max_env_steps"] / per_epoch
    return {
        "eval_episodes": config["eval_episodes"],
        "eval_every": config["eval_freq_epochs"] * per_epoch,
        "eval_from": int(warmup * per_epoch),
    }


def solved(sb3: Peer, n_seeds: int) -> dict[str, Any]:
    rule = stopping_rule()
    runs = []
    for seed in range(1, n_seeds + 1):
        sides: dict[str, Callable[[], dict[str, Any]]] = {
            "gymnasium-solver": lambda: _ours(TUNED_CONFIG, seed, None, None)
        }
        if sb3.python:
            flags = [f"--{name.replace('_', '-')}={value}" for name, value in rule.items()]
            flags.append(f"--threshold={THRESHOLD}")
            sides["SB3"] = lambda: _sb3(sb3, seed, None, None, *flags)
        for who in sides if seed % 2 == 1 else reversed(sides):
            say(f"solved: seed {seed} of {n_seeds}, {who}")
            runs.append({"who": who, "seed": seed, "repeat": seed} | sides[who]())
    return {"rule": rule | {"threshold": THRESHOLD}, "runs": runs}


def solved_markdown(result: dict[str, Any]) -> str:
    cells = []
    for who in dict.fromkeys(run["who"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["who"] == who]
        done = [run for run in runs if run["solved"]]
        cells.append(
            (
                who,
                f"{len(done)} of {len(runs)}",
                spread([run["env_steps"] for run in done]) if done else "–",
                spread([run["wall_s"] for run in runs], 1),
                spread([run["eval_s"] for run in runs], 1),
                _ratio(result["runs"], who, "wall_s"),
            )
        )
    head = ("library", "seeds solved", "env steps to solved", "shell to exit, s")
    return table((*head, "of it evaluations, s", "× faster than SB3"), cells)


# --- the two sides: one process, one record


def _ours(
    config: str, seed: int, n_threads: int | None, core: int | None, *flags: str
) -> dict[str, Any]:
    command = [GSOLVE, "train", config, f"--seed={seed}", "-q", *flags]
    if n_threads:
        command.append(f"--n-threads={n_threads}")
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        wall_s, _ = timed(command, core=core, n_threads=n_threads, environment=where)
        _, said = timed([GSOLVE, "run", "@last", "--json"], environment=where)
        curves = get_metrics("@last", ["wall_s", "train/sys/*"], Path(runs_dir))
    run = json.loads(said)
    times = curves["wall_s"]
    (first, start), (last, end) = times[0], times[-1]
    assert start is not None and end is not None
    share = curves.get("train/sys/timing/eval_share", [(0, 0.0)])[-1][1] or 0.0
    return {
        "wall_s": wall_s,
        "env_steps": run["env_steps"],
        "steps_per_s": (last - first) / (end - start) if end > start else float("nan"),
        "solved": bool(run["solved"]),
        "evals": [{k: event[k] for k in ("env_steps", "mean")} for event in run["evals"]],
        "eval_s": share * end,
    }


def _sb3(
    sb3: Peer, seed: int, n_threads: int | None, core: int | None, *flags: str
) -> dict[str, Any]:
    assert sb3.python is not None
    command = [sb3.python, SB3_SCRIPT, f"--seed={seed}", *flags]
    if n_threads:
        command.append(f"--threads={n_threads}")
    wall_s, said = timed(command, core=core, n_threads=n_threads)
    run = json.loads(said)
    run.pop("versions")
    return {"wall_s": wall_s, "torch_threads": run.pop("threads")} | run

