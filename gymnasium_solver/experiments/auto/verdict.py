"""What the held-out test of a run says about an environment without a tuned config."""

import math
from pathlib import Path
from typing import Any

from gymnasium_solver.envs.probe import Probe
from gymnasium_solver.runs.query import RunSummary, get_details
from gymnasium_solver.runs.run import Run

Z = 1.96


def is_above_random(mean: float, stderr: float | None, p: Probe) -> bool:
    """Whether a mean return is above that of random actions by more than both are uncertain."""
    if p.random_mean is None:
        return True
    random_se = (p.random_sd or 0.0) / math.sqrt(max(p.episodes, 1))
    return mean - Z * (stderr or 0.0) > p.random_mean + 2.0 * random_se


def judged(run: RunSummary, p: Probe) -> dict[str, Any]:
    """solved, learnt, unstable or not better than random, with the numbers and what to try."""
    test = run.test
    assert test is not None
    stderr = test["stderr"] or 0.0
    low, high = test["mean"] - Z * stderr, test["mean"] + Z * stderr
    last = (run.last_eval or {}).get("score")
    kind = "not better than random"
    if run.solved:
        kind = "solved"
    elif is_above_random(test["mean"], stderr, p):
        is_lost = last is not None and not is_above_random(float(last), None, p)
        kind = "unstable" if is_lost else "learnt"
    random = "" if p.random_mean is None else f", random {p.random_mean:,.4g}"
    goal = "no threshold known" if run.threshold is None else f"threshold {run.threshold:g}"
    text = (
        f"{kind}: {test['mean']:,.4g} [{low:,.4g}, {high:,.4g}] in {test['episodes']} held-out "
        f"episodes{random}; {goal}"
    )
    return {
        "kind": kind, "mean": test["mean"], "low": low, "high": high, "text": text,
        "next": _advice(run, kind),
    }  # fmt: skip


def _advice(run: RunSummary, kind: str) -> list[str]:
    """What to try next, by what the run's alerts say."""
    if kind == "solved":
        return [f"gsolve play {run.id}"]
    alerts = [a for a in get_details(Run(Path(run.path))).alerts if a.is_active and a.advice]
    found = [f"{a.name}: {a.advice}" for a in alerts[:3]]
    return [*found, f"gsolve train --resume {run.id} --max-env-steps {2 * run.env_steps}"]
