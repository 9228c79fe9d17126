"""Statistics over seeds and tasks, with intervals that count seeds, not episodes.

Scores are arrays [seeds, tasks], or [seeds] for one task; for several tasks they must be on one
scale (normalised). The definitions are those of rliable (Agarwal et al. 2021): IQM is the mean of
the middle half of all scores. NaN marks a seed that a task does not have. Tests and intervals hold
at the few seeds that people train: docs/statistics.md has their error rates by simulation.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Metric = Callable[[Array], Array]  # scores [..., seeds, tasks] -> values [...]

LEVEL, REPEATS = 0.95, 10_000
ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)  # quantiles of an interval
FEWEST_SEEDS = 3  # seeds on each side of a verdict
POWER, MOST_SEEDS = 0.8, 100  # of `seeds_needed`; more seeds are not a practical answer
FEWEST_FREEDOM = 4  # degrees of freedom for an interval by bootstrap quantiles
_CHUNK = 2_000_000  # values drawn at a time


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float
    n: int  # seeds, the fewest of any task


def as_scores(scores: ArrayLike) -> Array:
    """Scores as an array [seeds, tasks]."""
    array = np.asarray(scores, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise ValueError(f"expected scores of [seeds] or [seeds, tasks], got shape {array.shape}")
    if np.isnan(array).all(axis=0).any():
        raise ValueError("a task has no scores")
    return array


def mean(scores: Array) -> Array:
    """Mean over tasks of the mean over seeds."""
    return np.asarray(np.nanmean(np.nanmean(scores, axis=-2), axis=-1))


def median(scores: Array) -> Array:
    """Median over tasks of the mean over seeds; for one task the median over seeds."""
    if scores.shape[-1] == 1:
        return np.asarray(np.nanmedian(scores[..., 0], axis=-1))
    return np.asarray(np.nanmedian(np.nanmean(scores, axis=-2), axis=-1))


def iqm(scores: Array) -> Array:
    """Mean of the middle half of all scores; a quarter, rounded down, is cut off at each end."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)  # NaN goes to the end
    n = int((~np.isnan(flat)).sum(axis=-1).min())
    cut = n // 4
    return np.asarray(flat[..., cut : n - cut].mean(axis=-1))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """How far the scores stay below `target`; scores above it do not make up for others."""
    return np.asarray(target - np.nanmean(np.minimum(scores, target), axis=(-2, -1)))


METRICS: dict[str, Metric] = {
    "mean": mean, "median": median, "iqm": iqm, "optimality_gap": optimality_gap
}  # fmt: skip


def interval(
    scores: ArrayLike, metric: Metric = iqm, *, repeats: int = REPEATS, seed: int = 0
) -> Estimate:
    """The metric with its 95 % interval. With one seed both ends are NaN.

    Student's t for the mean over seeds. Otherwise the quantiles of a bootstrap that draws seeds
    within each task, at the probability of Student's t in place of the normal distribution
    (Hesterberg 2015): a plain bootstrap of few seeds is too narrow. With fewer than five seeds its
    draws cannot reach far enough, and its standard error is multiplied by Student's t."""
    array = as_scores(scores)
    n, tasks = n_seeds(array), array.shape[1]
    value = float(metric(array))
    if n < 2:
        return Estimate(value, np.nan, np.nan, n)
    freedom = int((~np.isnan(array)).sum()) - tasks
    width, correction = student_t(freedom), math.sqrt(n / (n - 1))
    if metric is mean and tasks == 1:
        reach = width * float(np.nanstd(array, ddof=1)) / math.sqrt(n)
        return Estimate(value, value - reach, value + reach, n)
    draws = np.concatenate([metric(part) for part in _resampled(array, repeats, seed)])
    if freedom < FEWEST_FREEDOM:
        reach = width * correction * float(draws.std())
        return Estimate(value, value - reach, value + reach, n)
    if tasks > 1:  # sums over tasks are nearly normal, with a variance that is too small
        width *= correction
    tail = NormalDist().cdf(-width)
    low, high = np.quantile(draws, (tail, 1 - tail))
    return Estimate(value, float(low), float(high), n)


def n_seeds(scores: Array) -> int:
    return int((~np.isnan(scores)).sum(axis=0).min())


def _resampled(scores: Array, repeats: int, seed: int) -> list[Array]:
    """Bootstrap samples [repeats, seeds, tasks] in chunks: seeds are drawn within each task."""
    rng = np.random.default_rng(seed)
    n, tasks = scores.shape
    size = max(1, _CHUNK // (n * tasks))
    parts = []
    for start in range(0, repeats, size):
        count = min(size, repeats - start)
        part = np.full((count, n, tasks), np.nan)
        for task in range(tasks):
            own = scores[~np.isnan(scores[:, task]), task]
            part[:, : len(own), task] = own[rng.integers(len(own), size=(count, len(own)))]
        parts.append(part)
    return parts


def probability_of_improvement(ours: ArrayLike, theirs: ArrayLike) -> float:
    """Chance that a random seed of ours scores higher than one of theirs, averaged over tasks.

    A tie counts half: 0.5 means no difference."""
    a, b = as_scores(ours), as_scores(theirs)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"{a.shape[1]} tasks against {b.shape[1]}: compare the same tasks")
    gap = a[:, None] - b
    won = np.where(np.isnan(gap), np.nan, (gap > 0) + 0.5 * (gap == 0))
    return float(np.nanmean(won, axis=(0, 1)).mean())


# --- two groups of seeds


def welch(ours: ArrayLike, theirs: ArrayLike) -> Array:
    """p-values of Welch's t-test of the means of scores [..., seeds]: the chance of such a
    difference between equal groups, on either side.

    Seeds that end either at the top or at the bottom are all alike in both groups, and on opposite
    sides, with a chance of up to 2 ** (1 - seeds): p is never smaller than that. Student's t would
    take such groups for certain."""
    value, error, freedom, n = _welch(ours, theirs)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(value) / error, np.inf)
    p = np.maximum(student_p(t, freedom), 2.0 ** (1 - n))
    return np.where(value == 0, 1.0, p)


def difference(ours: ArrayLike, theirs: ArrayLike) -> Estimate:
    """The difference of the means of two groups [seeds] with its 95 % interval by Welch's t."""
    value, error, freedom, _ = _welch(ours, theirs)
    n = min(len(np.asarray(ours)), len(np.asarray(theirs)))
    reach = student_t(round(float(freedom), 2)) * float(error) if n > 1 else np.nan
    return Estimate(float(value), float(value) - reach, float(value) + reach, n)


def _welch(ours: ArrayLike, theirs: ArrayLike) -> tuple[Array, Array, Array, int]:
    """The difference of the means, its standard error and degrees of freedom, and all seeds."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    n, m = a.shape[-1], b.shape[-1]
    value = a.mean(axis=-1) - b.mean(axis=-1)
    if min(n, m) < 2:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan), n + m
    first, second = a.var(axis=-1, ddof=1) / n, b.var(axis=-1, ddof=1) / m
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (first + second) ** 2 / (first**2 / (n - 1) + second**2 / (m - 1))
    freedom = np.where(np.isfinite(freedom), freedom, n + m - 2)
    return value, np.sqrt(first + second), freedom, n + m


def student_p(t: ArrayLike, freedom: ArrayLike) -> Array:
    """Two-sided p-value of Student's t."""
    # With t = sqrt(freedom) tan(x) the density is cos(x) ** (freedom - 1), here to its maximum 1.
    freedom = np.asarray(freedom, dtype=np.float64)
    x = np.arctan(np.asarray(t, dtype=np.float64) / np.sqrt(freedom))
    nodes, weights = _gauss()

    def area(start: Array) -> Array:
        places = start[..., None] + (np.pi / 2 - start[..., None]) * nodes
        values = np.cos(places) ** (freedom[..., None] - 1)
        return np.asarray((values * weights).sum(axis=-1) * (np.pi / 2 - start))

    return np.minimum(area(x) / area(np.zeros_like(x)), 1.0)


@lru_cache
def _gauss() -> tuple[Array, Array]:
    """Nodes and weights of a Gauss-Legendre quadrature over [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return (nodes + 1) / 2, weights / 2


@lru_cache(maxsize=10_000)
def student_t(freedom: float, level: float = LEVEL) -> float:
    """Where Student's t lies with a probability of `level`: between minus and plus this."""
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 1 - level:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, freedom) > 1 - level else (low, middle)
    return high


def power(effect: float, n: int, freedom: float, level: float = LEVEL) -> float:
    """Chance that the test sees a difference of `effect` standard errors of one seed, with n seeds
    on each side."""
    bar, shift = student_t(round(freedom, 2), level), effect * math.sqrt(n)
    spread = np.linspace(1e-6, 1 + 6 / math.sqrt(freedom), 200)  # of the estimated deviation
    logs = (freedom - 1) * np.log(spread) - freedom * spread**2 / 2
    density = np.exp(logs - logs.max())
    seen = [NormalDist().cdf(shift - bar * s) + NormalDist().cdf(-shift - bar * s) for s in spread]
    return float((density * seen).sum() / density.sum())


def seeds_needed(ours: ArrayLike, theirs: ArrayLike, comparisons: int = 1) -> int | None:
    """Seeds on each side with which the test sees a difference like this one in 80 % of cases. None
    if there is no difference, or if it is too small for MOST_SEEDS."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    spreads = [float(x.var(ddof=1)) for x in (a, b) if len(x) > 1]
    gap, fewest = abs(float(a.mean() - b.mean())), fewest_seeds(comparisons)
    if gap == 0 or not spreads:
        return None
    if not any(spreads):
        return fewest
    first, second = spreads if len(spreads) == 2 else spreads * 2
    ratio = (first + second) ** 2 / (first**2 + second**2)  # Welch: between 1 and 2
    effect, level = gap / math.sqrt(first + second), 1 - (1 - LEVEL) / comparisons
    n = bisect_left(
        range(MOST_SEEDS + 1), POWER, fewest, key=lambda n: power(effect, n, ratio * (n - 1), level)
    )
    return n if n <= MOST_SEEDS else None


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected so that all of them together have the error of
    one (Holm 1979)."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return [float(value) for value in np.minimum(adjusted, 1.0)]


def fewest_seeds(comparisons: int) -> int:
    """Seeds on each side with which the clearest of this many comparisons can be significant."""
    n = FEWEST_SEEDS
    while 2.0 ** (1 - 2 * n) > (1 - LEVEL) / comparisons:
        n += 1
    return n


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> Array:
    """Fraction of runs with a score above each threshold, averaged over tasks."""
    array, levels = as_scores(scores), np.asarray(thresholds, dtype=np.float64)
    above = np.where(np.isnan(array), np.nan, array > levels[:, None, None])
    return np.asarray(np.nanmean(np.nanmean(above, axis=1), axis=1))


def profile_band(
    scores: ArrayLike, thresholds: ArrayLike, *, repeats: int = 500
) -> tuple[Array, Array, Array]:
    """The performance profile with its pointwise bootstrap interval: (profile, low, high)."""
    array = as_scores(scores)
    samples = [sample for part in _resampled(array, repeats, seed=0) for sample in part]
    draws = np.stack([performance_profile(sample, thresholds) for sample in samples])
    low, high = np.quantile(draws, ENDS, axis=0)
    return performance_profile(array, thresholds), low, high


def aggregates(scores: ArrayLike, *, repeats: int = REPEATS) -> dict[str, Estimate]:
    """Mean, median, IQM and optimality gap of normalised scores [seeds, tasks], each with its
    interval."""
    return {name: interval(scores, metric, repeats=repeats) for name, metric in METRICS.items()}


def rank_table(groups: Mapping[str, ArrayLike]) -> dict[str, list[float]]:
    """Rank of each group in each task by its mean score; 1 is best, equal means share a rank."""
    means = np.stack([np.nanmean(as_scores(scores), axis=0) for scores in groups.values()])
    better = (means[None] > means[:, None]).sum(axis=1)
    equal = (means[None] == means[:, None]).sum(axis=1) - 1
    ranks = 1.0 + better + 0.5 * equal
    return {name: [float(r) for r in row] for name, row in zip(groups, ranks, strict=True)}


# --- curves


def on_grid(
    curves: Sequence[Sequence[tuple[float, float | None]]],
    n_points: int = 100,
    *,
    is_final: Sequence[bool] = (),
) -> tuple[Array, Array]:
    """Curves of several seeds at the same x: (grid [points], values [seeds, points]).

    Between two values of a curve the line counts. The grid is where all curves are known: from the
    latest first value to the earliest end, except that a curve marked in `is_final`, such as a run
    that stopped because it was solved, keeps its last value."""
    marks = list(is_final) or [False] * len(curves)
    clean = [[(x, y) for x, y in curve if y is not None and np.isfinite(y)] for curve in curves]
    kept = [(curve, mark) for curve, mark in zip(clean, marks, strict=True) if curve]
    if not kept:
        return np.zeros(0), np.zeros((0, 0))
    ends = [curve[-1][0] for curve, mark in kept if not mark]
    end = min(ends) if ends else max(curve[-1][0] for curve, _ in kept)
    start = max(curve[0][0] for curve, _ in kept)
    grid = np.linspace(start, end, n_points) if end > start else np.array([float(end)])
    values = [np.interp(grid, [x for x, _ in curve], [y for _, y in curve]) for curve, _ in kept]
    return grid, np.array(values)


def band(values: Array, *, repeats: int = 2_000, seed: int = 0) -> tuple[Array, Array, Array]:
    """IQM over seeds and its interval at each point of [seeds, points]: (iqm, low, high)."""
    found = np.full((3, values.shape[1]), np.nan)
    for place, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if known.size:
            at = interval(known, repeats=repeats, seed=seed)
            found[:, place] = at.value, at.low, at.high
    return found[0], found[1], found[2]


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` values at each point, of fewer at the beginning."""
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(values, dtype=np.float64)]))
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    return [float(value) for value in (sums[ends] - sums[starts]) / (ends - starts)]


def time_to_threshold(
    curves: Sequence[Sequence[tuple[float, float | None]]], threshold: float
) -> list[tuple[float, bool]]:
    """For each seed (x, reached): where the curve first reaches the threshold or, if it never does,
    where it ends."""
    times = []
    for curve in curves:
        hits = [x for x, y in curve if y is not None and y >= threshold]
        end = curve[-1][0] if curve else 0.0
        times.append((float(hits[0]), True) if hits else (float(end), False))
    return times


def median_time(times: Sequence[tuple[float, bool]]) -> float | None:
    """The median over all seeds; one that never gets there counts as later than all others. None
    if the median is such a seed."""
    middle = float(np.median([x if reached else np.inf for x, reached in times] or [np.inf]))
    return middle if np.isfinite(middle) else None


# --- SLM-Lab's measures of a curve


def curve_measures(
    curve: Sequence[tuple[float, float | None]],
    random_score: float = 0.0,
    updates: Sequence[float] | None = None,
) -> dict[str, float] | None:
    """Strength (mean above random), its maximum and end, efficiency and stability of one seed.

    Sample efficiency weighs the strengths by 1 / env steps: high if the score rises early. Training
    efficiency does so by 1 / `updates`, the number of updates at each point, if it is given.
    Stability is 1 minus the sum of all drops over the sum of strengths. None for an empty curve."""
    kept = [i for i, (x, y) in enumerate(curve) if y is not None and np.isfinite(y) and x > 0]
    if not kept:
        return None
    steps = np.array([curve[i][0] for i in kept], dtype=np.float64)
    strengths = np.array([curve[i][1] for i in kept], dtype=np.float64) - random_score
    drops = -np.minimum(np.diff(strengths), 0.0).sum()
    total, before = strengths.sum(), strengths[:-1].sum()
    found = {
        "strength": strengths.mean(),
        "max_strength": strengths.max(),
        "final_strength": strengths[-1],
        "sample_efficiency": (strengths / steps).sum() / total if total else np.nan,
        "stability": 1 - drops / before if before else np.nan,
    }
    if updates is not None:
        counts = np.maximum(1.0, np.array([updates[i] for i in kept], dtype=np.float64))
        found["training_efficiency"] = (strengths / counts).sum() / total if total else np.nan
    return {name: float(value) for name, value in found.items()}


def consistency(values: Array, random_score: float = 0.0) -> float:
    """1 minus twice the spread over seeds relative to the mean strength; values [seeds, points]."""
    strengths = values - random_score
    total = np.nanmean(strengths, axis=0).sum()
    return float(1 - 2 * np.nanstd(strengths, axis=0).sum() / total) if total else np.nan
