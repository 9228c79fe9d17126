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
from statistics import fmean, median

import numpy as np

from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.plan import METRICS, MetricPlan, Plan, PrunePlan
from gymnasium_solver.experiments.search.ranges import Numbers
from gymnasium_solver.experiments.statistics import Estimate
from gymnasium_solver.runs.query import RunSummary, get_config, get_metrics, get_run
from gymnasium_solver.runs.run import Run

VAL = "val/roll/ep_rew/mean"
Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Measured:
    """The result of one finished training."""

    value: float
    score: float | None  # mean of the held-out test
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


Z = 2.0
"""Standard errors by which a trial must be behind to end before all of its seeds are trained."""


def valued(trials: Sequence[Trial]) -> list[tuple[Trial, float]]:
    """The trials that were trained to their ends, with their values."""
    return [(t, t.value) for t in trials if t.state == COMPLETE and t.value is not None]


def ranked(plan: Plan, trials: Sequence[Trial]) -> list[Trial]:
    """Trials with a value, best first; of equal ones the one with fewer env steps."""
    order = sorted(
        valued(trials),
        key=lambda one: (-plan.sign * one[1], one[0].attrs.get("env_steps") or 0, one[0].number),
    )
    return [trial for trial, _ in order]


def front(plan: Plan, trials: Sequence[Trial]) -> list[Trial]:
    """Trials on the Pareto front of score and cost, which no other beats in both, cheapest
    first."""
    found: list[tuple[Trial, float]] = []
    order = sorted(valued(trials), key=lambda one: (one[0].cost, -plan.sign * one[1]))
    for trial, value in order:
        if not found or plan.sign * value > plan.sign * found[-1][1]:
            found.append((trial, value))
    return [trial for trial, _ in found]


# -- ending trials early --------------------------------------------------------------------------


def watched_metric(plan: Plan) -> str:
    """The curve that a pruning rule follows."""
    return VAL if plan.metric.name in METRICS else plan.metric.name


def rungs(prune: PrunePlan, budget: int) -> list[float]:
    """Where trials are compared, in env steps or logged rows."""
    if prune.rule == "off":
        return []
    first = prune.first
    if prune.unit == "env_steps" and first <= 1:
        first *= budget
    places: list[float] = []
    place = first
    while place < budget and len(places) < 50:
        places.append(place)
        place = place + first if prune.rule == "median" else place * prune.eta
    return places


def values_at(prune: PrunePlan, budget: int, points: Points) -> dict[str, float]:
    """The value of a curve at every rung that it has reached."""
    found: dict[str, float] = {}
    for place in rungs(prune, budget):
        if prune.unit == "rows":
            after = [value for _, value in points[math.ceil(place) - 1 :]]
        else:
            after = [value for steps, value in points if steps >= place]
        if not after:
            break
        found[f"{place:g}"] = after[0]
    return found


def pruned_at(plan: Plan, reached: dict[str, float], seen: Sequence[Trial]) -> str | None:
    """The first rung at which the rule ends the trial, if any."""
    over = [t.attrs.get("rungs") or {} for t in seen if t.state in (COMPLETE, PRUNED)]
    for rung, value in reached.items():
        others = [plan.sign * places[rung] for places in over if rung in places]
        own = plan.sign * value
        if plan.prune.rule == "median":
            is_bad = len(others) >= max(plan.prune.warmup, 1) and own < median(others)
        else:
            better = sum(other > own for other in others)
            kept = max(1, math.floor((len(others) + 1) / plan.prune.eta))
            is_bad = len(others) + 1 >= plan.prune.eta and better >= kept
        if is_bad:
            return rung
    return None


def pooled_deviation(trials: Sequence[Trial]) -> float | None:
    """Standard deviation between seeds, pooled over trials with several."""
    groups = [trial.attrs.get("values") or [] for trial in trials]
    freedom = sum(len(group) - 1 for group in groups if len(group) > 1)
    if freedom < 2:
        return None
    squares = sum((x - fmean(group)) ** 2 for group in groups if len(group) > 1 for x in group)
    return math.sqrt(squares / freedom)


def is_hopeless(plan: Plan, values: Sequence[float], seen: Sequence[Trial]) -> bool:
    """Is the mean over some seeds so far behind the best that more seeds cannot help?"""
    over = [t for t in ranked(plan, seen) if len(t.attrs.get("values") or []) > 1]
    deviation = pooled_deviation(over)
    if not values or deviation is None:
        return False
    margin = Z * deviation * math.sqrt(1 / len(values) + 1 / len(over[0].attrs["values"]))
    return plan.sign * fmean(values) + margin < plan.sign * (over[0].value or 0.0)


def shrunken(trials: Sequence[Trial]) -> dict[int, float]:
    """The mean of each trial, drawn towards the mean of all by as much as its seeds are few. With
    one seed per trial nothing is known about the noise, and the means stay."""
    means = {trial.number: value for trial, value in valued(trials)}
    noise = pooled_deviation([trial for trial, _ in valued(trials)])
    if noise is None or len(means) < 3:
        return means
    centre = fmean(means.values())
    noises = {t.number: noise**2 / len(t.attrs.get("values") or [0]) for t, _ in valued(trials)}
    spread = fmean((value - centre) ** 2 for value in means.values())
    between = max(spread - fmean(noises.values()), 0.0)
    return {
        number: centre + (mean - centre) * between / max(between + noises[number], 1e-300)
        for number, mean in means.items()
    }


# -- importance -----------------------------------------------------------------------------------

FEWEST_TRIALS = 8
WIDTHS = (0.05, 0.1, 0.2)
"""How far a trial tells about its neighbours, as shares of a range; the best of them counts."""
REPEATS = 100  # of the interval of importances


def importances(plan: Plan, trials: Sequence[Trial]) -> dict[str, Estimate]:
    """The share of the variance that each parameter explains by itself, largest first, with the sum
    1, and where 90 % of the shares lie if the trials are drawn anew; empty with too few trials.

    Each trial is predicted from the others that have a similar value of the parameter; what that
    takes off the squared error of their mean is the parameter's. Optuna's evaluators need
    scikit-learn, except for PED-ANOVA, which finds parameters that matter in pure noise, and
    overlooks a choice of two that decides everything."""
    over = valued(trials)
    values = np.array([value for _, value in over], dtype=np.float64)
    if len(over) < FEWEST_TRIALS or not np.ptp(values):
        return {}
    weights: list[list[np.ndarray]] = []
    names = [param.name for param in plan.space().params]
    for param in plan.space().params:
        latent, name = param.latent(), param.name
        shares = [latent.share(t.latents[name]) if name in t.latents else -1.0 for t, _ in over]
        gaps = np.subtract.outer(shares, shares)
        widths = WIDTHS if isinstance(latent, Numbers) else (1e-6,)
        weights.append([np.exp(-0.5 * (gaps / width) ** 2) for width in widths])
    rng = np.random.default_rng(0)
    found = _gain_shares(weights, values, np.ones(len(values)))
    draws = np.array([
        _gain_shares(weights, values, rng.multinomial(len(values), [1 / len(values)] * len(values)))
        for _ in range(REPEATS)
    ])  # fmt: skip
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    order = np.argsort(-found, kind="stable")
    return {
        names[i]: Estimate(float(found[i]), float(low[i]), float(high[i]), len(values))
        for i in order
    }


def _gain_shares(
    weights: Sequence[Sequence[np.ndarray]], values: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """What each parameter takes off the squared error, as shares; a trial counts `times` times. A
    trial never predicts itself."""
    n = times.sum()
    others = (times @ values - times * values) / np.maximum(n - times, 1e-9)
    error = float(times @ (values - others) ** 2 / n)
    gains = []
    for each in weights:
        errors = [error]
        for weight in each:
            near = weight * times * ~np.eye(len(values), dtype=bool)
            total = near.sum(axis=1)
            guess = np.where(total > 1e-9, near @ values / np.maximum(total, 1e-9), others)
            errors.append(float(times @ (values - guess) ** 2 / n))
        gains.append(error - min(errors))
    return np.array(gains) / (sum(gains) or 1.0)
