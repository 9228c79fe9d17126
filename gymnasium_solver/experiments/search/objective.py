"""What a run is worth to a search: one number from its folder.

`score` is the mean of the held-out test, `auc` the mean validation score over the whole budget
(after an early stop the last value counts), `best` and `last` are validations, `steps_to_solve`
are the env steps of a solved run, and any other name is a logged metric.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.search.plan import MetricPlan
from gymnasium_solver.runs.query import RunSummary, get_config, get_metrics, get_run
from gymnasium_solver.runs.run import Run

VAL = "val/roll/ep_rew/mean"
Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Measured:
    """The result of one finished training."""

    value: float
    score: float | None
    """Mean of the held-out test."""
    solved: bool | None
    env_steps: int
    wall_s: float


def measure(folder: Path, metric: MetricPlan, budget: int) -> Measured:
    """The metric of a finished run; RunError says why there is none."""
    run = Run(folder)
    summary = get_run(run)
    value = _value(run, summary, metric, budget)
    if value is None or not math.isfinite(value):
        raise RunError(f"{folder.name} has no value of {metric.name}")
    return Measured(value, summary.test_mean, summary.solved, summary.env_steps, summary.wall_s)


def _value(run: Run, summary: RunSummary, metric: MetricPlan, budget: int) -> float | None:
    match metric.name:
        case "score" if summary.test is not None:
            return summary.test_mean
        case "score" | "best":
            return summary.best_score
        case "last":
            return (summary.last_eval or {}).get("mean")
        case "auc":
            return area(curve(run, VAL), budget, _random_score(run, summary))
        case "steps_to_solve":
            return _steps_to_solve(run, summary, budget)
    values = [value for _, value in curve(run, metric.name)]
    if not values:
        return None
    each = {"last": values[-1], "max": max(values), "min": min(values), "mean": fmean(values)}
    return each[metric.over]


def curve(run: Run, name: str) -> Points:
    """The finite values of a logged metric; none while nothing is logged."""
    try:
        found = get_metrics(run, [name])
    except RunError:
        return []
    points = next(iter(found.values()), [])
    return [(steps, value) for steps, value in points if value is not None]


def area(points: Sequence[tuple[int, float]], budget: int, start: float | None) -> float | None:
    """Mean of a curve from 0 to the budget: it begins at `start`, or else at its first value, and
    keeps its last value."""
    if not points:
        return None
    line = [(0.0, points[0][1] if start is None else start), *points]
    line.append((float(max(budget, points[-1][0])), points[-1][1]))
    total = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(line))
    return total / line[-1][0]


def _random_score(run: Run, summary: RunSummary) -> float | None:
    baseline = random_baseline(summary.env_id, game_settings(get_config(run)))
    return None if baseline is None else baseline.mean


def _steps_to_solve(run: Run, summary: RunSummary, budget: int) -> float | None:
    """Env steps of a solved run. An unsolved one counts as more than the budget, up to twice as
    much for a score like that of random actions."""
    if summary.threshold is None:
        raise RunError("steps_to_solve needs a reward_threshold, which this environment lacks")
    if summary.solved:
        return float(summary.env_steps)
    if summary.test is None:
        return 2.0 * budget
    score, floor = summary.test["mean"], _random_score(run, summary)
    floor = score if floor is None or floor >= summary.threshold else floor
    room = summary.threshold - floor
    missing = (summary.threshold - score) / room if room > 0 else 1.0
    return budget * (1 + min(max(missing, 0.0), 1.0))
