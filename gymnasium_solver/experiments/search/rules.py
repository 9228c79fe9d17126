"""Rules that end a trial before its time. Off by default: they save time, but on one noisy seed
they also stop good configs.

A rule looks only at trials that the suggestion of this trial could see (samplers.first_pending), so
its decision does not depend on which run happened to be faster.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median

from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.objective import VAL, Points
from gymnasium_solver.experiments.search.plan import METRICS, Plan, PrunePlan

Z = 2.0
"""Standard errors by which a trial must be behind to end before all of its seeds are trained."""


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
    limit = budget if prune.unit == "env_steps" else max(budget, 1)
    places = [first]
    while (following := _next(prune, first, places[-1])) < limit and len(places) < 50:
        places.append(following)
    return [place for place in places if place < limit]


def _next(prune: PrunePlan, first: float, place: float) -> float:
    return place + first if prune.rule == "median" else place * prune.eta


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
    sign = 1.0 if plan.metric.goal == "maximize" else -1.0
    over = [trial for trial in seen if trial.state in (COMPLETE, PRUNED)]
    for rung, value in reached.items():
        others = [
            sign * trial.attrs["rungs"][rung]
            for trial in over
            if rung in (trial.attrs.get("rungs") or {})
        ]
        if plan.prune.rule == "median":
            is_bad = len(others) >= max(plan.prune.warmup, 1) and sign * value < median(others)
        else:
            better = sum(other > sign * value for other in others)
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
    sign = 1.0 if plan.metric.goal == "maximize" else -1.0
    over = [t for t in seen if t.state == COMPLETE and len(t.attrs.get("values") or []) > 1]
    deviation = pooled_deviation(over)
    if not values or deviation is None:
        return False
    best = max(over, key=lambda trial: sign * (trial.value or 0.0))
    n_best = len(best.attrs["values"])
    margin = Z * deviation * math.sqrt(1 / len(values) + 1 / n_best)
    return sign * fmean(values) + margin < sign * (best.value or 0.0)


def shrunken(plan: Plan, trials: Sequence[Trial]) -> dict[int, float]:
    """The mean of each trial, drawn towards the mean of all by as much as its seeds are few. With
    one seed per trial nothing is known about the noise, and the means stay."""
    over = [t for t in trials if t.state == COMPLETE and t.value is not None]
    means = {trial.number: float(trial.value or 0.0) for trial in over}
    noise = pooled_deviation(over)
    if noise is None or len(over) < 3:
        return means
    centre = fmean(means.values())
    sizes = {trial.number: len(trial.attrs.get("values") or [0]) for trial in over}
    spread = fmean((value - centre) ** 2 for value in means.values())
    between = max(spread - fmean(noise**2 / size for size in sizes.values()), 0.0)
    return {
        number: centre + (mean - centre) * between / max(between + noise**2 / sizes[number], 1e-300)
        for number, mean in means.items()
    }
