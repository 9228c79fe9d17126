"""Our learning curves beside a peer's: same hyper-parameters, seeds, machine and evaluation.

    .venv/bin/python -m benchmarks.curves benchmarks/configs/halfcheetah_sb3.yaml:sac \
        --steps 100000 --seeds 3

Any config of CartPole-v1 with PPO or DQN, HalfCheetah-v5 with SAC, or LunarLander-v3 with A2C can
be given; where it differs from the peer's hyper-parameters, the result says so. Both sides evaluate
alike: the greedy policy, on a fixed number of whole episodes started for the evaluation, raw
returns. Every training is a process of its own with one thread; two run at once. Raw figures go to
results/<name>.json, the table to results/<name>.md (both written again after each training), the
picture to docs/images/<name>.png.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.libraries import OURS, SB3, SBX, How, Peer, find, run_ours, run_peer
from benchmarks.training import CASES
from gymnasium_solver.bench.harness import (
    ROOT,
    FailedProcess,
    Options,
    describe,
    header,
    say,
    table,
    write,
)
from gymnasium_solver.config.schema import Config
from gymnasium_solver.training.prepare import load_config

N_TABLE_ROWS = 10
FEW_SEEDS = "**Not for publishing: fewer than three seeds of both sides.**"
# The task of the peers' script for each of our algorithms, and our config of the same work.
TASKS = {algo: case.tasks[SB3] for algo, case in CASES.items()} | {"a2c": "LunarLander-v3:a2c"}
SAME_WORK = {algo: case.config for algo, case in CASES.items()} | {
    "a2c": "benchmarks/configs/lunarlander_zoo.yaml:a2c"
}
# Fields that do not affect what is learnt.
NEUTRAL = {
    *("project_id", "variant", "description", "spec", "quiet", "profile"),
    *("n_threads", "device", "compile", "n_steps", "max_env_steps", "keep_checkpoints"),
    *("eval_freq_epochs", "eval_freq_steps", "eval_episodes", "eval_warmup_epochs", "n_eval_envs"),
    "early_stop_on_eval_threshold",
}


def main() -> None:
    args = parse_args()
    config = checked_config(args.config)
    cadence = eval_cadence(config, args.eval_every, args.steps)
    peer = find(args.peer, Options(repeats=1, peers_python=args.peers_python))
    if peer.missing:
        raise SystemExit(f"curves: no {peer.name} to compare with: {peer.missing}")
    result: dict[str, Any] = header(shown_command(args)) | {
        "config": args.config,
        "env_id": config.env_id,
        "algo_id": config.algo_id,
        "peers": [peer.describe()],
        "env_steps": args.steps,
        "eval_every": cadence["env_steps"],
        "eval_episodes": args.eval_episodes,
        "differs": differences(config),
        "runs": [],
    }
    jobs = [(who, seed) for seed in args.seeds for who in (OURS, peer.name)]
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(train, who, seed, args, cadence, peer) for who, seed in jobs]
        for n_done, future in enumerate(as_completed(futures), start=1):
            run = future.result()
            text = run.get("error") or f"last evaluation {run['evals'][-1]['mean']:,.1f}"
            say(f"curves: {n_done} of {len(jobs)}, {run['who']} seed {run['seed']}: {text}")
            result["runs"].append(run)
            result["runs"].sort(key=lambda run: jobs.index((run["who"], run["seed"])))
            write(args.out, args.name, result, markdown(result))
    draw(result, args.images / f"{args.name}.png")
    print(markdown(result))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="curves.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="as gsolve train takes it")
    parser.add_argument("--steps", type=int, default=100_000, help="env steps of each run (100000)")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[3], help="one number: how many; several: which"
    )
    parser.add_argument("--eval-every", type=int, default=5_000, help="env steps (5000)")
    parser.add_argument("--eval-episodes", type=int, default=10, help="(10)")
    parser.add_argument("--peer", choices=(SB3, SBX), default=SB3)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once (2)")
    parser.add_argument("--name", help="name of the result files (curves-<env>-<algorithm>)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--images", type=Path, default=ROOT / "docs/images")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python")
    args = parser.parse_args()
    if len(args.seeds) == 1:
        args.seeds = list(range(1, args.seeds[0] + 1))
    config = load_config(args.config)
    args.name = args.name or f"curves-{config.env_id.lower()}-{config.algo_id}"
    args.peers_python = args.peers_python.absolute()
    return args


def shown_command(args: argparse.Namespace) -> str:
    parts = ["python -m benchmarks.curves", args.config, "--steps", args.steps]
    parts += ["--seeds", *(args.seeds if len(args.seeds) > 1 else [1])]
    parts += ["--eval-every", args.eval_every, "--eval-episodes", args.eval_episodes]
    return " ".join(map(str, parts + (["--peer", args.peer] if args.peer != SB3 else [])))


def checked_config(name: str) -> Config:
    """The config, if the peers' script has the same task."""
    config = load_config(name)
    if f"{config.env_id}:{config.algo_id}" not in TASKS.values():
        known = ", ".join(TASKS.values())
        raise SystemExit(
            f"curves: {name} is {config.env_id} with {config.algo_id}, but the peers' script has "
            f"{known} only; give one of these, or add yours to benchmarks/peers/zoo.py."
        )
    return config


def eval_cadence(config: Config, eval_every: int, env_steps: int) -> dict[str, int]:
    """Whole epochs between evaluations, nearest to `eval_every`, and their env steps.

    The config's epochs stay as they are, because rounds of updates end with them. They include
    reset rows, so ours evaluates slightly earlier than the peer: at most one step per episode.
    """
    per_epoch = config.n_steps * config.n_envs
    n_epochs = max(1, round(eval_every / per_epoch))
    if n_epochs * per_epoch > env_steps:
        raise SystemExit(
            f"curves: a run of {env_steps:,} steps has no evaluation: the first would come after "
            f"{n_epochs} epochs of {per_epoch:,} steps. Raise --steps, or lower --eval-every or "
            "the config's n_steps."
        )
    return {"epochs": n_epochs, "env_steps": n_epochs * per_epoch}


def differences(config: Config) -> dict[str, list[str]]:
    """Fields that differ from the peers' hyper-parameters: [ours, the peers']."""
    same = load_config(SAME_WORK[config.algo_id])
    return {
        name: [str(ours), str(theirs)]
        for name, theirs in same
        if name not in NEUTRAL and (ours := getattr(config, name)) != theirs
    }


def train(
    who: str, seed: int, args: argparse.Namespace, cadence: dict[str, int], peer: Peer
) -> dict[str, Any]:
    """One training on one thread; a failure is a result too."""
    run, how = {"who": who, "seed": seed}, How(seed, n_threads=1)
    episodes = f"--eval-episodes={args.eval_episodes}"
    try:
        if who == OURS:
            flags = [f"--max-env-steps={args.steps}", f"--eval-freq-epochs={cadence['epochs']}"]
            flags += ["--early-stop-on-eval-threshold=false", "--eval-warmup-epochs=0"]
            flags.append("--eval-deterministic=true")  # as the peers are evaluated
            return run | run_ours(args.config, how, *flags, episodes)
        algo = load_config(args.config).algo_id
        flags = [f"--steps={args.steps}", f"--eval-every={cadence['env_steps']}", episodes]
        return run | run_peer(peer, TASKS[algo], how, *flags)
    except FailedProcess as error:
        return run | {"error": str(error)}


# --- the table and the picture


def curves(result: dict[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Env steps [T] and, by library, mean returns [seeds, T] at them, of the seeds that all have.

    Sides evaluate some steps apart, so returns are read off the lines between evaluations.
    """
    grid = np.arange(result["eval_every"], result["env_steps"] + 1, result["eval_every"])
    lines: dict[str, dict[int, np.ndarray]] = {}
    for run in result["runs"]:
        if run.get("evals"):
            steps, means = ([e[key] for e in run["evals"]] for key in ("env_steps", "mean"))
            lines.setdefault(run["who"], {})[run["seed"]] = np.interp(grid, steps, means)
    shared = common_seeds(result)
    return grid, {who: np.stack([line[s] for s in shared]) for who, line in lines.items() if shared}


def common_seeds(result: dict[str, Any]) -> list[int]:
    """The seeds that every library has finished: others compare with nothing."""
    seeds: dict[str, set[int]] = {run["who"]: set() for run in result["runs"]}
    for run in result["runs"]:
        if run.get("evals"):
            seeds[run["who"]].add(run["seed"])
    return sorted(set.intersection(*seeds.values())) if seeds else []


def markdown(result: dict[str, Any]) -> str:
    grid, by_who = curves(result)
    every = max(1, -(-len(grid) // N_TABLE_ROWS))
    shown = np.arange(len(grid))[::-1][::every][::-1]  # the last one is among them
    rows = [
        [f"{grid[i]:,}", *(_mean_and_range(values[:, i]) for values in by_who.values())]
        for i in shown
    ]
    rows.append(["mean of the curve", *(_mean_and_range(v.mean(axis=1)) for v in by_who.values())])
    versions = ", ".join(f"{k} {v}" for k, v in result["peers"][0]["versions"].items())
    differs = "; ".join(f"{k} {a} (peer: {b})" for k, (a, b) in result["differs"].items())
    failed = [
        f"- {r['who']} seed {r['seed']}: {r['error']}" for r in result["runs"] if "error" in r
    ]
    shared = common_seeds(result)
    alone = sorted({run["seed"] for run in result["runs"] if run.get("evals")} - set(shared))
    seeds = f"Seeds of both: {', '.join(map(str, shared)) or 'none'}" + (
        f" (of one side only and left out: {', '.join(map(str, alone))})" if alone else ""
    )
    parts = [
        f"# Learning curves, {result['algo_id']} on {result['env_id']}",
        f"{describe(result)}\n- {result['peers'][0]['name']}: {versions}",
        f"Mean return of {result['eval_episodes']} greedy episodes, about every "
        f"{result['eval_every']:,} env steps, each training on one thread. Mean over seeds, range "
        f"in brackets. {seeds}. Hyper-parameters that differ: {differs or 'none'}.",
        *([FEW_SEEDS] if len(shared) < 3 else []),
        table(("env steps", *by_who), rows),
        *([result["note"]] if "note" in result else []),
    ]
    return "\n\n".join(parts + (["Failed:\n\n" + "\n".join(failed)] if failed else []))


def _mean_and_range(values: np.ndarray) -> str:
    """Mean and range over seeds."""
    text = f"{values.mean():,.1f}"
    return text if len(values) == 1 else f"{text} ({values.min():,.1f} to {values.max():,.1f})"


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    from gymnasium_solver.chart_style import COLOURS, STYLE

    grid, by_who = curves(result)
    with matplotlib.rc_context(STYLE):
        figure, ax = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
        for (who, values), colour in zip(by_who.items(), COLOURS, strict=False):
            label = f"{who}: mean and range over {len(values)} seeds"
            ax.plot(grid, values.mean(axis=0), color=colour, linewidth=2.2, label=label)
            low, high = values.min(axis=0), values.max(axis=0)
            ax.fill_between(grid, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.set_title(f"{result['env_id']}, {result['algo_id']}: greedy evaluations")
        ax.set_xlabel("env steps")
        ax.set_ylabel("return")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.set_xlim(left=0)
        ax.margins(x=0.01)
        ax.legend(fontsize=9, loc="best")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)


if __name__ == "__main__":
    main()
