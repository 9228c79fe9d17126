"""`gsolve solve` compared with the defaults of Stable-Baselines3 and sbx. Env steps are equal, and
nothing is tuned.

    .venv/bin/python -m benchmarks.auto --sb3-python .venv-peers/bin/python
    .venv/bin/python -m benchmarks.auto --only CartPole FrozenLake --seeds 21 22
    .venv/bin/python -m benchmarks.auto --merge other/auto.json

The environments are the development set of `solve`: its table and presets were made with them, so
that this shows what it does where it was looked at, not on an environment that nobody saw. Tasks,
budgets, bars and seeds were written down before the runs; presets were made with seeds 1 to 13.
Ours is `gsolve solve ENV --max-env-steps N`: all steps count, of the probe, the race and the
training, and the score is the verdict's held-out test. A peer is PPO, and DQN or SAC for its
actions (also of sbx), with all else at its default; its score is that of the last policy over 100
greedy episodes. One process at a time. Each row has its commit and command; rows that are there
are not made again, so that a pass that was broken off goes on. Failed rows stay. Figures:
results/auto.json and auto.md.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.training.prepare import load_config

NAME = "auto"
TUNED = ROOT / "benchmarks/results/classics.json"
NEAR = 0.8  # of the way from random to the best shipped config
SOLVE, TASKS_MODULE, OWN_MODULE = "solve", "benchmarks.auto_tasks", "benchmarks.own_tasks"
DMC = "benchmarks.peers.dmc_tasks"
SBX = "sbx-"  # before the algorithm; a peer without it is of Stable-Baselines3
EPISODES = 100
SEEDS = (21, 22, 23, 24, 25)
APART = 100  # a race takes the seeds that follow: those of two rows may not be the same
HEAD = (
    "env", "env steps", "random", "bar", "solve", "trained", "verdicts", "SB3 PPO",
    "SB3 DQN or SAC", "sbx DQN or SAC", "at or above the better peer", "80 % of tuned",
    "probe and race",
)  # fmt: skip


class Task(NamedTuple):
    steps: int
    bar: float | None
    """A score that counts as learnt."""
    off_policy: str = "dqn"
    """Of SB3 and sbx; of SB3 there is PPO besides."""
    tuned: str | None = None
    """The id of the shipped config, if it is another."""
    module: str = ""
    """That peers need for the id."""


TASKS = {
    "CartPole-v1": Task(50_000, 475.0),
    "Acrobot-v1": Task(100_000, -100.0),
    "MountainCar-v0": Task(100_000, -110.0),
    "Pendulum-v1": Task(20_000, -200.0, "sac"),
    "MountainCarContinuous-v0": Task(50_000, 90.0, "sac"),
    "FrozenLake-v1": Task(50_000, 0.7),
    "FrozenLake8x8-v1": Task(100_000, 0.5),
    "CliffWalking-v1": Task(50_000, -20.0),
    "Taxi-v4": Task(100_000, 7.0, tuned="Taxi-v3"),
    "Blackjack-v1": Task(50_000, -0.07),
    "Bandit-v0": Task(10_000, None),
    f"{TASKS_MODULE}:CartPole-no_velocity-v0": Task(100_000, 475.0),
    f"{TASKS_MODULE}:CartPole-obs_noise-v0": Task(50_000, 475.0),
    f"{TASKS_MODULE}:Pendulum-reward_x1000_500-v0": Task(20_000, None, "sac"),
    f"{TASKS_MODULE}:Recall-v0": Task(50_000, 0.9),
    f"{TASKS_MODULE}:TMaze-v0": Task(60_000, 0.9),
    f"{TASKS_MODULE}:Chain-v0": Task(60_000, 39.0),
    "Memory/RepeatPreviousEasy-v0": Task(100_000, 0.4),
    f"{OWN_MODULE}:Grid-v0": Task(50_000, 0.9),
    f"{OWN_MODULE}:Board-v0": Task(50_000, None),
    f"{OWN_MODULE}:Huge-v0": Task(50_000, None, "sac"),
    "InvertedPendulum-v5": Task(30_000, 950.0, "sac"),
    "LunarLander-v3": Task(200_000, 200.0),
    "LunarLanderContinuous-v3": Task(100_000, 200.0, "sac"),
    "BipedalWalker-v3": Task(300_000, 250.0, "sac"),
    "MiniGrid-Empty-5x5-v0": Task(50_000, 0.9),
    "MiniGrid-DoorKey-5x5-v0": Task(200_000, 0.9),
    "CartpoleSwingup-v1": Task(50_000, 700.0, "sac", module=DMC),
    "WalkerWalk-v1": Task(100_000, 600.0, "sac", module=DMC),
    "FetchReach-v4": Task(30_000, -5.0, "sac"),
    "HalfCheetah-v5": Task(50_000, 2000.0, "sac"),
    "Hopper-v5": Task(50_000, 1000.0, "sac"),
}


def main() -> int:
    args = parse_args()
    result = header("python -m benchmarks.auto") | {"benchmark": NAME, "rows": []}
    path = args.out / f"{NAME}.json"
    if path.exists():
        result["rows"] = json.loads(path.read_text())["rows"]
    known = {_key(row): row for row in result["rows"]}
    if args.merge:
        for other in args.merge:
            for row in json.loads(other.read_text())["rows"]:
                known.setdefault(_key(row), row)
        result["rows"] = list(known.values())
        write(args.out, NAME, result, markdown(result))
        return 0
    for seed in args.seeds:
        for env_id, task in TASKS.items():
            if args.only and not any(word in env_id for word in args.only):
                continue
            for who in (SOLVE, *peers_of(task)):
                if (env_id, who, seed) in known or (who != SOLVE and args.sb3_python is None):
                    continue
                if args.who and who not in args.who:
                    continue
                row = {"env": env_id, "who": who, "seed": seed, "steps": task.steps}
                row |= {"commit": result["versions"]["commit"], "cpu": result["machine"]["cpu"]}
                began_s = time.monotonic()
                row |= ours(env_id, task, seed, args.runs) if who == SOLVE else (
                    peer(args.sb3_python, env_id, task, who, seed)
                )  # fmt: skip
                row["wall_s"] = round(time.monotonic() - began_s, 1)
                say(f"{env_id} {who} seed {seed}: {row.get('score', row.get('error'))}")
                result["rows"].append(row)
                write(args.out, NAME, result, markdown(result))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="ids that contain one of these")
    parser.add_argument("--who", nargs="+", default=[], help="solve, ppo, sac, sbx-sac, ...")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="add rows of these files")
    parser.add_argument("--sb3-python", type=Path, help="a Python that has stable-baselines3, sbx")
    parser.add_argument("--runs", type=Path, default=ROOT / "build/auto", help="run folders")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    return parser.parse_args()


def peers_of(task: Task) -> tuple[str, ...]:
    return ("ppo", task.off_policy, SBX + task.off_policy)


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["env"], row["who"], row["seed"]


def ours(env_id: str, task: Task, seed: int, runs: Path) -> dict[str, Any]:
    """The verdict of one solve, which is continued if it was broken off."""
    name = f"{env_id.rpartition(':')[2].replace('/', '-')}-s{seed}"
    own_seed = str(APART * seed)
    words = [env_id, "--max-env-steps", str(task.steps), "--seed", own_seed, "--name", name]
    if (runs / "experiments" / name / "auto.json").exists():
        words = ["--resume", name]
    gsolve = [sys.executable, "-m", "gymnasium_solver"]
    command = ["solve", *words, "--jobs", "1", "-q", "--json", "--runs-dir", str(runs)]
    found = subprocess.run([*gsolve, *command], cwd=ROOT, capture_output=True, text=True)
    shown = {"command": f"gsolve solve {env_id} --max-env-steps {task.steps} --seed {own_seed}"}
    try:
        verdict = json.loads(found.stdout[found.stdout.index("{") :])
    except ValueError:
        return shown | {"error": _last_line(found.stderr)}
    state = json.loads((runs / "experiments" / name / "auto.json").read_text())
    return shown | {
        "score": verdict["mean"],
        "verdict": verdict["kind"],
        "preset": state.get("restart", state["winner"])["name"],
        "restart": state.get("restart", {}).get("why"),
        "env_steps": verdict["env_steps"],
        "random": state["probe"]["random_mean"],
        "first_steps": state["probe"]["steps"]
        + sum(preset.get("env_steps", 0) for preset in state.get("race", {}).values()),
    }


def peer(python: Path, env_id: str, task: Task, who: str, seed: int) -> dict[str, Any]:
    name = ":".join([*filter(None, [task.module]), env_id, who.removeprefix(SBX)])
    words = ["-m", "benchmarks.peers.sb3_own", name, "--steps", str(task.steps)]
    words += ["--seed", str(seed), "--episodes", str(EPISODES)]
    words += ["--peer", "sbx"] * who.startswith(SBX)
    found = subprocess.run([str(python), *words], cwd=ROOT, capture_output=True, text=True)
    shown = {"command": "python " + " ".join(words)}
    if found.returncode != 0:
        return shown | {"error": _last_line(found.stderr)}
    told = json.loads(found.stdout.strip().splitlines()[-1])
    return shown | {"score": told["score"], "env_steps": told["env_steps"]} | {
        "versions": told["versions"]
    }  # fmt: skip


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no output"])[-1][:200]


# -- the table ------------------------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    rows = result["rows"]
    versions = {f"{n} {v}" for row in rows for n, v in row.get("versions", {}).items()}
    commits, cpus = (sorted({str(row[name]) for row in rows}) for name in ("commit", "cpu"))
    known = [env_id for env_id in TASKS if any(row["env"] == env_id for row in rows)]
    failed = [
        f"- {row['env']} {row['who']} seed {row['seed']}: {row['error']}"
        for row in rows
        if "error" in row
    ]
    both = [env_id for env_id in known if _best_peer(rows, env_id) is not None]
    ahead = [env_id for env_id in both if _is_ahead(rows, env_id)]
    own = {env_id: _of(rows, env_id, SOLVE) for env_id in known}
    shipped = [env_id for env_id in known if own[env_id] and tuned_bar(env_id, own[env_id])]
    close = [e for e in shipped if _mean(own[e]) >= (tuned_bar(e, own[e]) or 0.0)]
    parts = [
        "# Environments without a config: solve and the defaults of Stable-Baselines3 and sbx",
        describe(result) + "".join(f"\n- {text}" for text in sorted(versions)),
        f"Commits of the rows: {', '.join(commits)}; CPUs: {', '.join(cpus)}. Every "
        "seed's score is shown. Ours: the held-out test of the checkpoint that validation chose, "
        "after a probe, a race and a training; peers: the last policy, "
        f"{EPISODES} greedy episodes; the same env steps. The "
        "bar is a score that counts as learnt. These environments are those that presets and table "
        "were made with.",
        table(HEAD, [_row(rows, env_id) for env_id in known]),
        f"Mean at or above the better peer's: {len(ahead)} of {len(both)} environments that a "
        f"peer can train. At {NEAR:.0%} of the way from random to the best mean of a shipped "
        f"config ({TUNED.name}, whose budgets are often larger): {len(close)} of {len(shipped)}.",
    ]
    return "\n\n".join(parts + (["Failed:\n\n" + "\n".join(failed)] if failed else []))


def _of(rows: list[dict[str, Any]], env_id: str, who: str) -> list[dict[str, Any]]:
    return [r for r in rows if (r["env"], r["who"]) == (env_id, who) and "score" in r]


def _best_peer(rows: list[dict[str, Any]], env_id: str) -> float | None:
    peers = [_of(rows, env_id, who) for who in peers_of(TASKS[env_id])]
    means = [_mean(found) for found in peers if found]
    return max(means, default=None)


def _is_ahead(rows: list[dict[str, Any]], env_id: str) -> bool:
    own, best = _of(rows, env_id, SOLVE), _best_peer(rows, env_id)
    return bool(own) and best is not None and _mean(own) >= best


def _mean(rows: list[dict[str, Any]]) -> float:
    return fmean(row["score"] for row in rows)


def tuned_bar(env_id: str, own: list[dict[str, Any]]) -> float | None:
    """80 % of the way from random (0 if unknown) to the best mean of a shipped config."""
    rows = json.loads(TUNED.read_text())["rows"]
    shipped = TASKS[env_id].tuned or env_id
    same = [row for row in rows if row["env_id"] == shipped and not _is_changed(row["label"])]
    best = max((row["mean"] for row in same), default=None)
    if best is None or not own:
        return None
    random = own[0]["random"]
    way = best - random if random is not None else abs(best)
    return float(best - (1.0 - NEAR) * way)


def _is_changed(label: str) -> bool:
    """Whether a shipped config is of an environment with other arguments."""
    return bool(load_config(label).env_kwargs)


def _first_share(own: list[dict[str, Any]]) -> str:
    shares = [row["first_steps"] / row["steps"] for row in own if "first_steps" in row]
    return f"{max(shares):.0%}" if shares else "–"


def _row(rows: list[dict[str, Any]], env_id: str) -> tuple[object, ...]:
    task, own = TASKS[env_id], _of(rows, env_id, SOLVE)
    best, near = _best_peer(rows, env_id), tuned_bar(env_id, own)
    is_near = near is not None and _mean(own) >= near
    return (
        env_id.rpartition(":")[2],
        f"{task.steps:,}",
        f"{own[0]['random']:,.4g}" if own and own[0]["random"] is not None else "–",
        "–" if task.bar is None else f"{task.bar:g}",
        _scores(own),
        ", ".join(dict.fromkeys(row["preset"] for row in own)) or "–",
        ", ".join(f"{n} {kind}" for kind, n in _counts([row["verdict"] for row in own]).items()),
        *(_scores(_of(rows, env_id, who)) for who in peers_of(task)),
        "–" if best is None else "yes" if _is_ahead(rows, env_id) else "no",
        "–" if near is None else f"{near:,.4g}: {'yes' if is_near else 'no'}",
        _first_share(own),
    )


def _scores(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['score']:,.4g}" for row in rows) or "–"


def _counts(kinds: list[str]) -> dict[str, int]:
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


if __name__ == "__main__":
    sys.exit(main())
