"""Statistics over seeds and tasks, with intervals that count seeds, not episodes.

    interval(scores, iqm)                          # Estimate(value, low, high, n)
    probability_of_improvement(ours, theirs)       # 0.5: no difference
    performance_profile(scores, thresholds)

Scores are arrays [seeds, tasks], or [seeds] for one task; for several tasks they must be on one
scale (normalised). The definitions are those of rliable (Agarwal et al. 2021): IQM is the mean of
the middle half of all scores, intervals are percentile bootstraps that draw seeds within each task.
NaN marks a seed that a task does not have.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Metric = Callable[[Array], Array]
"""Scores [..., seeds, tasks] -> values [...]."""

LEVEL, REPEATS = 0.95, 10_000
ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)  # quantiles of an interval
FEWEST_SEEDS = 4
"""Seeds on each side of a verdict. With three, 2 of the 20 ways to deal six scores are clear: equal
groups would be told apart in 10 % of cases."""
DEALS = 20_000  # of a permutation test
_CHUNK = 2_000_000  # values drawn at a time


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float
    n: int
    """Seeds, the fewest of any task."""

    def overlaps(self, other: "Estimate") -> bool:
        return self.low <= other.high and other.low <= self.high

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
    """The metric with its percentile bootstrap interval. With one seed both ends are NaN."""
    array = as_scores(scores)
    n = n_seeds(array)
    value = float(metric(array))
    if n < 2:
        return Estimate(value, np.nan, np.nan, n)
    draws = np.concatenate([metric(part) for part in _resampled(array, repeats, seed)])
    low, high = np.quantile(draws, ENDS)
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

    A tie counts half: 0.5 means no difference.
    """
    a, b = as_scores(ours), as_scores(theirs)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"{a.shape[1]} tasks against {b.shape[1]}: compare the same tasks")
    return float(_wins(a, b))


def _wins(a: Array, b: Array) -> Array:
    """Share of the pairs of scores [..., seeds, tasks] that the first one wins: [...]."""
    difference = a[..., :, None, :] - b[..., None, :, :]
    won = np.where(np.isnan(difference), np.nan, (difference > 0) + 0.5 * (difference == 0))
    return np.asarray(np.nanmean(won, axis=(-3, -2)).mean(axis=-1))


def improvement_interval(
    ours: ArrayLike, theirs: ArrayLike, *, repeats: int = 2_000, seed: int = 0
) -> Estimate:
    """Probability of improvement with its bootstrap interval over the seeds of both sides."""
    a, b = as_scores(ours), as_scores(theirs)
    value = probability_of_improvement(a, b)
    n = min(n_seeds(a), n_seeds(b))
    if n < 2:
        return Estimate(value, np.nan, np.nan, n)
    parts = zip(_resampled(a, repeats, seed), _resampled(b, repeats, seed + 1), strict=False)
    draws = [_wins(x[: len(y)], y[: len(x)]) for x, y in parts]
    low, high = np.quantile(np.concatenate(draws), ENDS)
    return Estimate(value, float(low), float(high), n)


def permutation_p(ours: ArrayLike, theirs: ArrayLike) -> float:
    """Chance that equal groups have a probability of improvement as far from one half, on either
    side. All ways to deal the scores to the two groups are counted, or a sample of them."""
    a, b = as_scores(ours)[:, 0], as_scores(theirs)[:, 0]
    n, total = len(a), len(a) + len(b)
    _, places, sizes = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[places]
    gaps = np.abs(ranks[_deals(n, total)].sum(axis=1) - n * (total + 1) / 2)
    n_as_far = int((gaps >= abs(ranks[:n].sum() - n * (total + 1) / 2) - 1e-9).sum())
    if math.comb(total, n) <= DEALS:
        return n_as_far / len(gaps)
    return (n_as_far + 1) / (len(gaps) + 1)


@lru_cache(maxsize=8)
def _deals(n: int, total: int) -> NDArray[np.int64]:
    """All ways to choose n of all scores, or DEALS random ones: [ways, n]."""
    if math.comb(total, n) <= DEALS:
        return np.array(list(combinations(range(total), n)))
    return np.random.default_rng(0).random((DEALS, total)).argsort(axis=1)[:, :n]


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
    while 2 / math.comb(2 * n, n) > (1 - LEVEL) / comparisons:
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
    that stopped because it was solved, keeps its last value.
    """
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
    """Median of times of which some are only lower bounds (Kaplan-Meier); None if half of the
    seeds are not known to get there."""
    alive = 1.0
    for moment in sorted({x for x, reached in times if reached}):
        at_risk = sum(x >= moment for x, _ in times)
        events = sum(x == moment and reached for x, reached in times)
        alive *= 1 - events / at_risk
        if alive <= 0.5 + 1e-12:
            return moment
    return None


# --- SLM-Lab's measures of a curve


def curve_measures(
    curve: Sequence[tuple[float, float | None]],
    random_score: float = 0.0,
    updates: Sequence[float] | None = None,
) -> dict[str, float] | None:
    """Strength (mean above random), its maximum and end, efficiency and stability of one seed.

    Sample efficiency weighs the strengths by 1 / env steps: high if the score rises early. Training
    efficiency does so by 1 / `updates`, the number of updates at each point, if it is given.
    Stability is 1 minus the sum of all drops over the sum of strengths. None for an empty curve.
    """
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
