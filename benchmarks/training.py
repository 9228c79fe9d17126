"""PPO on CartPole-v1 against peers, as processes started from the shell.

Throughput: the same work (rl-zoo hyper-parameters, evaluation off) on both sides. Solved: what a
user gets out of the box, our tuned config against the zoo's, under one stopping rule: a greedy
evaluation of the same number of episodes, after the same number of env steps, reaches 475.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import GSOLVE, FailedProcess, can_pin, cores, say, spread, table, timed
from gymnasium_solver.config.load import load_config
from gymnasium_solver.runs.query import get_metrics
from gymnasium_solver.training.threads import pick_threads

ZOO_CONFIG = "benchmarks/configs/cartpole_zoo.yaml:ppo"
TUNED_CONFIG = "CartPole-v1:ppo"
SB3_SCRIPT = "benchmarks/peers/sb3_ppo.py"
THRESHOLD = 475.0
OURS, SB3 = "gymnasium-solver", "SB3"
THREADING = {"one": 1, "default": None}


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
        return Peer(SB3, None, {}, "its environment is not installed (make peers)")
    try:
        said = timed([str(python), SB3_SCRIPT, "--versions"]).stdout
    except FailedProcess as error:
        return Peer(SB3, None, {}, str(error))
    return Peer(SB3, str(python), json.loads(said)["versions"])


# --- throughput


def throughput(sb3: Peer, repeats: int, env_steps: int) -> list[dict[str, Any]]:
    """One row a run, both sides in turn in each repeat."""
    rows = []
    for repeat in range(repeats):
        for threading, n_threads in THREADING.items():
            core = cores()[repeat % len(cores())] if threading == "one" else None
            how = How(seed=repeat + 1, n_threads=n_threads, core=core)
            say(f"throughput: repeat {repeat + 1} of {repeats}, threads: {threading}")
            for row in _take_turns(
                {
                    OURS: partial(_ours, ZOO_CONFIG, how, f"--max-env-steps={env_steps}"),
                    SB3: partial(_sb3, sb3, how, f"--steps={env_steps}"),
                },
                flip=repeat % 2 == 1,
            ):
                rows.append({"repeat": repeat, "threading": threading} | row)
    return rows


def _take_turns(
    sides: dict[str, Callable[[], dict[str, Any]]], flip: bool
) -> Iterator[dict[str, Any]]:
    """Run each side once; a peer that is missing or fails is told in its row, ours must work."""
    for who in reversed(sides) if flip else sides:
        try:
            yield {"who": who} | sides[who]()
        except FailedProcess as error:
            if who == OURS:
                raise
            say(f"bench: {who} failed: {error}")
            yield {"who": who, "error": str(error)}


def throughput_markdown(rows: list[dict[str, Any]], env_steps: int) -> str:
    cells = []
    for threading in THREADING:
        chosen = [row for row in rows if row["threading"] == threading and "error" not in row]
        for who in dict.fromkeys(row["who"] for row in chosen):
            runs = [row for row in chosen if row["who"] == who]
            rate = [row["steps_per_s"] for row in runs]
            wall = [row["wall_s"] for row in runs]
            cells.append(
                (
                    who,
                    _threads_text(threading, runs),
                    spread(rate),
                    _ratio(chosen, who, "steps_per_s"),
                    spread(wall, 1),
                    _ratio(chosen, who, "wall_s"),
                )
            )
    head = ("library", "threads", "training, steps/s", "× SB3")
    return table((*head, f"shell to {env_steps:,} steps, s", "× faster than SB3"), cells)


def _threads_text(threading: str, runs: list[dict[str, Any]]) -> str:
    if threading == "one":
        return "1, on one core" if can_pin() else "1"
    return "its default: " + ", ".join(map(str, sorted({row["threads"] for row in runs})))


def _ratio(rows: list[dict[str, Any]], who: str, field: str) -> str:
    """How many times as fast as SB3, pair by pair over the repeats."""
    ours = {row["repeat"]: row[field] for row in rows if row["who"] == who}
    theirs = {row["repeat"]: row[field] for row in rows if row["who"] == SB3}
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return "–"
    if who == SB3:
        return "1"
    ratios = [ours[k] / theirs[k] for k in shared]
    return spread([1 / r for r in ratios] if field == "wall_s" else ratios, 1)


# --- shell to solved


def stopping_rule() -> dict[str, int]:
    """Episodes and cadence of our tuned config's evaluations, in env steps."""
    config = json.loads(timed([GSOLVE, "show", TUNED_CONFIG, "--json"]).stdout)
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
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in rule.items()]
    runs = []
    for seed in range(1, n_seeds + 1):
        say(f"solved: seed {seed} of {n_seeds}")
        how = How(seed)
        for run in _take_turns(
            {
                OURS: partial(_ours, TUNED_CONFIG, how),
                SB3: partial(_sb3, sb3, how, *flags, f"--threshold={THRESHOLD}"),
            },
            flip=seed % 2 == 0,
        ):
            runs.append({"repeat": seed} | run)
    return {"rule": rule | {"threshold": THRESHOLD}, "runs": runs}


def solved_markdown(result: dict[str, Any]) -> str:
    cells = []
    finished = [run for run in result["runs"] if "error" not in run]
    for who in dict.fromkeys(run["who"] for run in finished):
        runs = [run for run in finished if run["who"] == who]
        done = [run for run in runs if run["solved"]]
        cells.append(
            (
                who,
                f"{len(done)} of {len(runs)}",
                spread([run["env_steps"] for run in done]) if done else "–",
                spread([run["wall_s"] for run in runs], 1),
                spread([run["eval_s"] for run in runs], 1),
                _ratio(finished, who, "wall_s"),
            )
        )
    head = ("library", "seeds solved", "env steps to solved", "shell to exit, s")
    return table((*head, "of it evaluations, s", "× faster than SB3"), cells)


# --- the two sides: one process, one record


@dataclass(frozen=True)
class How:
    """The conditions of one run; None leaves the choice to the library."""

    seed: int
    n_threads: int | None = None
    core: int | None = None


def _ours(config: str, how: How, *flags: str) -> dict[str, Any]:
    command = [GSOLVE, "train", config, f"--seed={how.seed}", "-q", *flags]
    if how.n_threads:
        command.append(f"--n-threads={how.n_threads}")
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        done = timed(command, core=how.core, n_threads=how.n_threads, environment=where)
        run = json.loads(timed([GSOLVE, "run", "@last", "--json"], environment=where).stdout)
        curves = get_metrics("@last", ["wall_s", "train/sys/timing/*_share"], Path(runs_dir))
    times = [(env_steps, s) for env_steps, s in curves["wall_s"] if s is not None]
    (first, start), (last, end) = times[0], times[-1]
    eval_share = curves.get("train/sys/timing/eval_share", [(0, 0.0)])[-1][1]
    evals = [event for event in run["evals"] if event["stage"] == "val"]
    return {
        "wall_s": done.wall_s,
        "others_cores": done.others_cores,
        "threads": how.n_threads or pick_threads(load_config(config)),
        "env_steps": run["env_steps"],
        "steps_per_s": (last - first) / (end - start) if end > start else None,
        "solved": any(event["mean"] >= THRESHOLD for event in evals),
        "evals": [{"env_steps": event["env_steps"], "mean": event["mean"]} for event in evals],
        "eval_s": (eval_share or 0.0) * end,
    }


def _sb3(sb3: Peer, how: How, *flags: str) -> dict[str, Any]:
    if sb3.python is None:
        raise FailedProcess(sb3.missing)
    command = [sb3.python, SB3_SCRIPT, f"--seed={how.seed}", *flags]
    if how.n_threads:
        command.append(f"--threads={how.n_threads}")
    done = timed(command, core=how.core, n_threads=how.n_threads)
    run = json.loads(done.stdout)
    run.pop("versions")
    return {"wall_s": done.wall_s, "others_cores": done.others_cores} | run
