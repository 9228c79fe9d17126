"""Do defaults learn environments that a user writes? Ours and Stable-Baselines3's, nothing tuned.

    .venv/bin/python -m benchmarks.own_envs               # 3 seeds; writes results/own-envs.*
    .venv/bin/python -m benchmarks.own_envs --only Board-v0 --seeds 1

The environments are in own_tasks.py. Ours is `gsolve train benchmarks.own_tasks:ENV:ALGO` with a
budget and nothing else. Both scores are of the policy after the last step, over greedy episodes
that had no part in training; ours also has the test of the checkpoint that it selected. A task
counts as learnt if the score reaches the bar, most of the way from random actions to the best.
One process at a time, one thread. Figures go to results/own-envs.json, the table to
results/own-envs.md; both are rewritten after each training.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.libraries import OURS, SB3
from gymnasium_solver.bench.harness import (
    GSOLVE,
    ROOT,
    FailedProcess,
    describe,
    header,
    say,
    spread,
    table,
    timed,
    write,
)

NAME = "own-envs"
MODULE = "benchmarks.own_tasks"
EPISODES = 100
HEAD = ("learnt", "bar", "random", "best", "wall, s")


class Task(NamedTuple):
    random: float
    bar: float
    best: str
    steps: dict[str, int]  # budget by algorithm
    peers: tuple[str, ...]  # algorithms that SB3 has for it


TASKS = {
    "Grid-v0": Task(
        -0.3, 0.9, "0.96", {"ppo": 50_000, "dqn": 40_000, "sac": 15_000}, ("ppo", "dqn")
    ),
    "Board-v0": Task(-3.9, 5.5, "6", {"ppo": 60_000, "dqn": 40_000, "sac": 15_000}, ("ppo", "dqn")),
    "Huge-v0": Task(
        -900_000, -100_000, "about -30,000", {"ppo": 100_000, "sac": 15_000}, ("ppo", "sac")
    ),
}


def main() -> None:
    args = parse_args()
    command = "python -m benchmarks.own_envs" + (
        f" --seeds {args.seeds}" if args.seeds != 3 else ""
    )
    result = header(command) | {"benchmark": "own_envs", "runs": []}
    jobs = [
        (who, f"{env_id}:{algo}", steps, seed)
        for seed in range(1, args.seeds + 1)
        for env_id, task in TASKS.items()
        for algo, steps in task.steps.items()
        for who in ((OURS, SB3) if algo in task.peers else (OURS,))
        if not args.only or env_id in args.only or f"{env_id}:{algo}" in args.only
    ]
    for n, (who, name, steps, seed) in enumerate(jobs, start=1):
        run = {"who": who, "task": name, "seed": seed, "steps": steps}
        try:
            if who == OURS:
                run |= train_ours(name, steps, seed)
            else:
                run |= train_peer(args.peers_python, name, steps, seed)
        except FailedProcess as error:
            if who == OURS:
                raise
            run["error"] = str(error)
        outcome = run.get("error") or f"{run['score']:,.2f}, {run['wall_s']:.0f} s"
        say(f"{NAME}: {n} of {len(jobs)}, {who} {name} seed {seed}: {outcome}")
        result["runs"].append(run)
        write(args.out, NAME, result, markdown(result))
    print(markdown(result))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="own_envs.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many (3)")
    parser.add_argument("--only", nargs="+", default=[], help="ENV or ENV:ALGO")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    return parser.parse_args()


def train_ours(name: str, steps: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        command = [GSOLVE, "train", f"{MODULE}:{name}", f"--seed={seed}", "-q"]
        done = timed(
            [*command, f"--max-env-steps={steps}", "--n-threads=1"], n_threads=1, environment=where
        )
        score = ["eval", "@last/@last", f"--episodes={EPISODES}", "--json"]
        last = json.loads(timed([GSOLVE, *score], environment=where).stdout)
        run = json.loads(timed([GSOLVE, "run", "@last", "--json"], environment=where).stdout)
    greedy = last["scores"]["greedy"]
    return {
        "env_steps": run["env_steps"],
        "wall_s": done.wall_s,
        "score": greedy["mean"],
        "stderr": greedy["stderr"],
        "selected": run["test"]["mean"],
    }


def train_peer(python: Path, name: str, steps: int, seed: int) -> dict[str, Any]:
    if not python.exists():
        raise FailedProcess("its environment is not installed (make peers)")
    command = [str(python), "-m", "benchmarks.peers.sb3_own", name]
    done = timed([*command, f"--steps={steps}", f"--seed={seed}"], n_threads=1)
    run: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return run | {"wall_s": done.wall_s}


def markdown(result: dict[str, Any]) -> str:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in result["runs"]:
        groups.setdefault((run["task"], run["who"]), []).append(run)
    ordered = sorted(groups.items(), key=lambda item: _place(*item[0]))
    failed = [f"- {r['who']}, {r['task']}: {r['error']}" for r in result["runs"] if "error" in r]
    peers = {name: v for r in result["runs"] for name, v in r.get("versions", {}).items()}
    parts = [
        "# Environments of one's own, with defaults",
        describe(result) + "".join(f"\n- {name} {v}" for name, v in peers.items()),
        "Grid-v0: a Dict of integer coordinates. Board-v0: a 6 x 6 board of uint8 zeros and ones. "
        "Huge-v0: observations of a million, rewards of ten thousand. Score: mean return of the "
        f"last policy over {EPISODES} greedy episodes; selected: the held-out test of the "
        "checkpoint that validation selected (SB3 selects none by default). Learnt: seeds whose "
        "last policy reaches the bar. SB3 has no SAC for discrete actions. Time from the shell, "
        "one thread.",
        table(
            (*("env", "algorithm", "env steps", "library", "score by seed", "selected"), *HEAD),
            [_row(task, who, runs) for (task, who), runs in ordered],
        ),
    ]
    return "\n\n".join(parts + (["Missing:\n\n" + "\n".join(failed)] if failed else []))


def _place(task: str, who: str) -> tuple[int, int, bool]:
    env_id, algo = task.split(":")
    return list(TASKS).index(env_id), list(TASKS[env_id].steps).index(algo), who != OURS


def _row(task: str, who: str, runs: Sequence[dict[str, Any]]) -> tuple[object, ...]:
    env_id, algo = task.split(":")
    facts, done = TASKS[env_id], [run for run in runs if "error" not in run]
    learnt = sum(run["score"] >= facts.bar for run in done)
    return (
        env_id,
        algo,
        f"{runs[0]['steps']:,}",
        who,
        ", ".join(_number(run["score"]) for run in done) or "–",
        ", ".join(_number(run["selected"]) for run in done if "selected" in run) or "–",
        f"{learnt} of {len(done)}",
        _number(facts.bar),
        _number(facts.random),
        facts.best,
        spread([run["wall_s"] for run in done]) if done else "–",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


if __name__ == "__main__":
    main()
