"""How well configs learn: each trained with several seeds, scored by its final test.

    .venv/bin/python -m benchmarks.learning CartPole-v1:ppo Acrobot-v1:ppo --seeds 5 --name classic

Every training is the command a user types, in a process of its own with one thread; two run at
once. The score of a seed is the greedy test after training: the best checkpoint on held-out
episodes, which had no part in choosing it. A seed is solved if this score reaches the threshold.
Statistics are over seeds. Raw figures go to results/<name>.json, the table to results/<name>.md;
both are rewritten after each training. `python -m benchmarks.rewrite` makes the tables again.
"""

import argparse
import json
import math
import shlex
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

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
from gymnasium_solver.experiments.statistics import interval


def main() -> None:
    args = parse_args()
    extra = shlex.split(args.args)
    result = header(shown_command(args)) | {"train_args": args.args, "runs": []}
    jobs = [(config, seed) for seed in args.seeds for config in args.configs]
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(train, config, seed, extra) for config, seed in jobs]
        for n_done, future in enumerate(as_completed(futures), start=1):
            run = future.result()
            which = f"{run['config']} seed {run['seed']}"
            say(f"learning: {n_done} of {len(jobs)}, {which}: {result_text(run)}")
            result["runs"].append(run)
            result["runs"].sort(key=lambda run: (args.configs.index(run["config"]), run["seed"]))
            write(args.out, args.name, result, markdown(result))
    print(markdown(result))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="learning.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("configs", nargs="+", help="as gsolve train takes them")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[3], help="one number: how many; several: which"
    )
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once (2)")
    parser.add_argument("--args", default="", help="more flags for gsolve train")
    parser.add_argument("--name", default="learning", help="name of the result files")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    if len(args.seeds) == 1:
        args.seeds = list(range(1, args.seeds[0] + 1))
    return args


def shown_command(args: argparse.Namespace) -> str:
    parts = ["python -m benchmarks.learning", *args.configs]
    parts += ["--seeds", *map(str, args.seeds if len(args.seeds) > 1 else [1])]
    return " ".join(parts + (["--args", shlex.quote(args.args)] if args.args else []))


def train(config: str, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    """One training in a runs folder of its own; a failure is a result too."""
    command = ["train", config, "--seed", str(seed), *extra]
    run: dict[str, Any] = {
        "config": config,
        "seed": seed,
        "command": shlex.join(["gsolve", *command]),
    }
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        try:
            done = timed(
                [GSOLVE, *command, "--n-threads", "1", "-q"], n_threads=1, environment=where
            )
            read = timed([GSOLVE, "run", "@last", "--json"], environment=where)
        except FailedProcess as error:
            return run | {"error": str(error)}
    return run | {"wall_s": done.wall_s} | outcome(json.loads(read.stdout))


def outcome(summary: dict[str, Any]) -> dict[str, Any]:
    """The part of `gsolve run RUN --json` that the statistics need."""
    evals, threshold = summary["evals"], summary["threshold"]
    val = [event for event in evals if event["stage"] == "val"]
    test = summary["test"]
    reached = [e["env_steps"] for e in val if threshold is not None and e["mean"] >= threshold]
    return {
        "score": test["mean"] if test else None,
        "stderr": test["stderr"] if test else None,
        "solved": summary["solved"],
        "normalized": summary.get("normalized"),
        "test_episodes": test["episodes"] if test else 0,
        **({"success": test["success"]} if test and "success" in test else {}),
        "threshold": threshold,
        "solved_env_steps": reached[0] if reached else None,
        "env_steps": summary["env_steps"],
        "stop_reason": summary["stop_reason"],
        "best": summary["best"],
        "val": [[event["env_steps"], event["mean"]] for event in val],
    }


def result_text(run: dict[str, Any]) -> str:
    if "error" in run:
        return f"failed, {run['error']}"
    score = "no test score" if run["score"] is None else f"test {run['score']:.1f}"
    score += f", success {run['success']:.2f}" if "success" in run else ""
    return f"{score}, {run['env_steps']:,} env steps, {run['wall_s']:.0f} s"


def is_solved(run: dict[str, Any]) -> bool:
    """Whether the held-out test reaches the threshold. Validation scores do not count: the best of
    many is too high. Results from before runs had a verdict are judged by their test here."""
    if "solved" in run:
        return bool(run["solved"])
    score, threshold = run.get("score"), run.get("threshold")
    return score is not None and threshold is not None and bool(score >= threshold)


def statistics(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Statistics over the seeds that have a score; None without any."""
    scores = [run["score"] for run in runs if run.get("score") is not None]
    if not scores:
        return None
    found = interval(scores)
    low, high = (x if math.isfinite(x) else found.value for x in (found.low, found.high))
    return {"mean": float(np.mean(scores)), "iqm": found.value, "low": low, "high": high}


def markdown(result: dict[str, Any]) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        groups.setdefault(run["config"], []).append(run)
    failed = [f"- {run['command']}: {run['error']}" for run in result["runs"] if "error" in run]
    head = ("config", "seeds", "test score by seed", "mean", "IQM", "95 % CI of the IQM")
    parts = [
        "# Learning",
        describe(result),
        "Score: mean return of the best checkpoint on held-out test episodes, played greedily. "
        "Solved: seeds whose score reaches the threshold. Env steps: where a validation of a "
        "solved seed first reached the threshold. Env steps and wall time (from the shell, on one "
        "thread) are medians with the range over seeds. Normalised: the mean score on a scale "
        "from random actions (0) to the threshold (1). Intervals are percentile bootstraps over "
        "seeds.",
        table(
            (*head, "threshold", "solved", "env steps", "wall, s", "normalised"),
            [_row(config, runs) for config, runs in groups.items()],
        ),
        "Commands:\n\n" + "\n".join(f"- `{_any_seed(runs[0])}`" for runs in groups.values()),
    ]
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts)


def _row(config: str, runs: Sequence[dict[str, Any]]) -> tuple[object, ...]:
    stats = statistics(runs)
    done = [run for run in runs if "error" not in run]
    solved = [run for run in done if is_solved(run)]
    steps = [run["solved_env_steps"] for run in solved if run["solved_env_steps"] is not None]
    threshold = done[0]["threshold"] if done else None
    scores = ["failed" if "error" in r else _number(r["score"]) for r in runs]
    return (
        config,
        len(runs),
        ", ".join(scores),
        _number(stats["mean"] if stats else None),
        _number(stats["iqm"] if stats else None),
        f"{_number(stats['low'])} to {_number(stats['high'])}" if stats else "–",
        "–" if threshold is None else f"{threshold:g}",
        f"{len(solved)} of {len(runs)}" if threshold is not None else "–",
        spread(steps) if steps else "–",
        spread([run["wall_s"] for run in done]) if done else "–",
        _number(_normalized(stats["mean"] if stats else None, done)),
    )


def _normalized(score: float | None, runs: Sequence[dict[str, Any]]) -> float | None:
    """The score on a scale from random actions (0) to the target (1), if both are known."""
    ends = next((run["normalized"] for run in runs if run.get("normalized")), None)
    if score is None or ends is None:
        return None
    return float((score - ends["random"]) / (ends["target"] - ends["random"]))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def _any_seed(run: dict[str, Any]) -> str:
    return str(run["command"]).replace(f"--seed {run['seed']}", "--seed <seed>")


if __name__ == "__main__":
    main()
