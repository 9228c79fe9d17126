"""What the results of trials say: their order, which end early, and which parameters mattered.

Rules that end a trial early are off by default: they save time, but on one noisy seed they also
stop good configs. A rule looks only at trials that the suggestion of this trial could see
(samplers.first_pending), so its decision does not depend on which run happened to be faster.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

import numpy as np

from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.objective import VAL, Points
from gymnasium_solver.experiments.search.plan import METRICS, Plan, PrunePlan

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
TREES, DEPTH, LEAF, SHUFFLES = 100, 6, 2, 3
Array = np.ndarray


def importances(plan: Plan, trials: Sequence[Trial]) -> dict[str, float]:
    """The share of the variance that each parameter explains, largest first, with the sum 1; empty
    with too few trials.

    A forest of small regression trees is fitted to the trials; a parameter's importance is how much
    worse the trees predict the trials they have not seen when its values are shuffled (Breiman
    2001). Optuna's evaluators need scikit-learn, except for PED-ANOVA, which finds parameters that
    matter in pure noise, and overlooks a choice of two that decides everything."""
    over = valued(trials)
    values = np.array([value for _, value in over], dtype=np.float64)
    if len(over) < FEWEST_TRIALS or not np.ptp(values):
        return {}
    latents = {param.name: param.latent() for param in plan.space().params}
    table = np.array(  # -1 where a parameter was not searched
        [[latent.share(trial.latents[name]) if name in trial.latents else -1.0
          for name, latent in latents.items()] for trial, _ in over]
    )  # fmt: skip
    losses = _losses(table, values)
    shares = losses / losses.sum() if losses.any() else losses
    names = list(latents)
    return {names[i]: float(shares[i]) for i in np.argsort(-shares, kind="stable")}


def _losses(table: Array, values: Array) -> Array:
    """Rise of the squared error outside of the sample when a column is shuffled."""
    rng = np.random.default_rng(0)
    n, columns = table.shape
    total = np.zeros(columns)
    for _ in range(TREES):
        drawn = rng.integers(n, size=n)
        left_out = np.setdiff1d(np.arange(n), drawn)
        if not len(left_out):
            continue
        predict = _tree(table[drawn], values[drawn], rng, DEPTH)
        rows, truth = table[left_out], values[left_out]
        error = np.mean((predict(rows) - truth) ** 2)
        for column in range(columns):
            for _ in range(SHUFFLES):
                mixed = rows.copy()
                mixed[:, column] = table[rng.integers(n, size=len(rows)), column]
                total[column] += (np.mean((predict(mixed) - truth) ** 2) - error) / SHUFFLES
    return np.maximum(total, 0.0)


def _tree(
    table: Array, values: Array, rng: np.random.Generator, depth: int
) -> Callable[[Array], Array]:
    """A regression tree, as the function that predicts."""
    mean, best, cut_at = float(values.mean()), 0.0, (-1, 0.0)
    if depth and len(values) >= 2 * LEAF and np.ptp(values):
        columns = table.shape[1]
        for column in rng.choice(columns, size=max(1, -(-columns // 2)), replace=False):
            gain, cut = _best_cut(table[:, column], values)
            if gain > best:
                best, cut_at = gain, (int(column), cut)
    column, cut = cut_at
    if column < 0:
        return lambda rows: np.full(len(rows), mean)
    is_low = table[:, column] <= cut
    low = _tree(table[is_low], values[is_low], rng, depth - 1)
    high = _tree(table[~is_low], values[~is_low], rng, depth - 1)
    return lambda rows: np.where(rows[:, column] <= cut, low(rows), high(rows))


def _best_cut(column: Array, values: Array) -> tuple[float, float]:
    """The largest drop of the squared error, and the cut that has it."""
    order = np.argsort(column, kind="stable")
    x, y = column[order], values[order]
    n = len(y)
    sums = np.cumsum(y)[:-1]
    sizes = np.arange(1, n)
    gains = sums**2 / sizes + (y.sum() - sums) ** 2 / (n - sizes) - y.sum() ** 2 / n
    gains[(x[1:] == x[:-1]) | (sizes < LEAF) | (n - sizes < LEAF)] = -np.inf
    at = int(np.argmax(gains))
    return float(gains[at]), float((x[at] + x[at + 1]) / 2)
