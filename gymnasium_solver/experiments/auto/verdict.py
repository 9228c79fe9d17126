"""What the held-out test of a run says about an environment without a tuned config."""

import math
from collections.abc import Mapping
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


def disagreement(scores: Mapping[str, float], p: Probe) -> str | None:
    """Which of these trainings of one algorithm learnt, and which did not; None if they agree.
    Strongly apart: the worst is not above random actions, the best is by two of their standard
    deviations."""
    if len(scores) < 2 or p.random_mean is None:
        return None
    best, worst = max(scores, key=lambda n: scores[n]), min(scores, key=lambda n: scores[n])
    is_learnt = scores[best] > p.random_mean + 2.0 * (p.random_sd or 0.0)
    if not is_learnt or is_above_random(scores[worst], None, p):
        return None
    return f"{best} has {scores[best]:,.4g}, {worst} only {scores[worst]:,.4g}"


def judged(
    run: RunSummary, p: Probe, apart: str | None = None, more_steps: int | None = None
) -> dict[str, Any]:
    """solved, learnt, unstable or not better than random, with the numbers and what to try.
    `apart`: how trainings of the same algorithm disagree. `more_steps`: that are worth it."""
    test = run.test
    assert test is not None
    stderr = test["stderr"] or 0.0
    low, high = test["mean"] - Z * stderr, test["mean"] + Z * stderr
    kind, why = "not better than random", ""
    if run.solved:
        kind = "solved"
    elif is_above_random(test["mean"], stderr, p):
        last = (run.last_eval or {}).get("score")
        if last is not None and not is_above_random(float(last), None, p):
            apart = f"the best checkpoint has {test['mean']:,.4g}, the last policy {last:,.4g}"
        kind = "learnt" if apart is None else "unstable"
        why = f"; {apart}" if apart else ""
    random = "" if p.random_mean is None else f", random {p.random_mean:,.4g}"
    goal = "no threshold known" if run.threshold is None else f"threshold {run.threshold:g}"
    text = (
        f"{kind}: {test['mean']:,.4g} [{low:,.4g}, {high:,.4g}] in {test['episodes']} held-out "
        f"episodes{random}; {goal}{why}"
    )
    return {
        "kind": kind, "mean": test["mean"], "low": low, "high": high, "text": text,
        "next": _advice(run, kind, more_steps),
    }  # fmt: skip


def _advice(run: RunSummary, kind: str, more_steps: int | None) -> list[str]:
    """What to try next, by what the run's alerts say."""
    if kind == "solved":
        return [f"gsolve play {run.id}"]
    alerts = [a for a in get_details(Run(Path(run.path))).alerts if a.is_active and a.advice]
    # A preset is no variant of a shipped config: its run has the config.
    shown, own = f"gsolve train {run.env_id}:{run.variant}", f"gsolve train {run.path}/config.yaml"
    found = [f"{a.name}: {a.advice.replace(shown, own)}" for a in alerts[:3]]
    if more_steps is not None:
        steps = run.env_steps + more_steps
        return [*found, f"gsolve train --resume {run.id} --max-env-steps {steps}"]
    return [*found, f"gsolve sweep {run.path}/config.yaml"]
