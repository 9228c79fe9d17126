"""The statistics against rliable's values on the same arrays, closed forms and simulation."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.experiments import statistics as stats
from gymnasium_solver.experiments.statistics import METRICS, Estimate, interval

# Scores [seeds, tasks] and what rliable 1.2.0 (metrics.py) makes of them.
A = np.array([
    [1.212, -0.167, 0.725, 0.43], [0.464, 0.535, -0.006, 0.53], [0.34, 1.597, 0.668, 0.494],
    [0.516, 0.4, 0.283, 0.483], [0.745, 0.528, 0.887, 0.54],
])  # fmt: skip
B = np.array([
    [1.212, 1.041, 0.691, 0.323], [0.436, 0.689, 0.283, 0.406], [0.415, 0.851, 0.19, 0.398],
    [0.809, 0.703, 0.532, 0.735], [-0.49, 0.857, 0.164, -0.084], [0.597, 0.745, 0.344, 0.123],
    [0.509, 0.482, 0.992, 0.762],
])  # fmt: skip
ONE = np.array([207.8, 244.5, 191.8, 163.0, 223.4, 223.3, 191.4, 168.7, 209.2, 100.2])
RLIABLE = {
    "a": {"mean": 0.5602, "median": 0.545, "iqm": 0.5188, "optimality_gap": 0.48025},
    "b": {
        "mean": 0.5255357142857142,
        "median": 0.47742857142857137,
        "iqm": 0.5487142857142857,
        "optimality_gap": 0.4835,
    },
}


@pytest.mark.parametrize("name", list(METRICS))
def test_point_metrics_equal_rliable(name: str) -> None:
    for scores, expected in ((A, RLIABLE["a"]), (B, RLIABLE["b"])):
        assert float(METRICS[name](scores)) == pytest.approx(expected[name], abs=1e-9)


def test_points_of_one_task() -> None:
    assert interval([100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 2.0, 3.0]).value == 2.5
    assert interval([1.0, 2.0, 6.0]).value == 3.0  # too few to leave out any
    assert interval([7.0, 7.0, 7.0]) == Estimate(7.0, 7.0, 7.0, 3)  # no width
    assert interval(ONE).value == pytest.approx(198.7)
    assert float(METRICS["median"](ONE[:, None])) == pytest.approx(np.median(ONE))
    assert float(stats.optimality_gap(np.array([[2.0], [0.5]]))) == pytest.approx(0.25)


def test_probability_of_improvement_equals_rliable() -> None:
    assert stats.probability_of_improvement(A, B) == pytest.approx(0.5214285714285715, abs=1e-12)
    assert stats.probability_of_improvement([1.0, 2.0], [1.0, 2.0]) == 0.5
    assert stats.probability_of_improvement([3.0, 4.0], [1.0, 2.0]) == 1.0


def test_profile_and_its_band() -> None:
    found = stats.performance_profile(A, [0.0, 0.2, 0.39, 0.6, 0.8, 1.0, 1.2])
    assert found == pytest.approx([0.9, 0.9, 0.8, 0.3, 0.15, 0.1, 0.1])
    levels = np.linspace(-1, 2, 7)
    share, low, high = stats.profile_band(A, levels, repeats=200)
    assert np.array_equal(share, stats.performance_profile(A, levels))
    assert (low <= share + 1e-12).all()
    assert (share <= high + 1e-12).all()
    every = stats.aggregates(A, repeats=200)
    assert every["iqm"] == interval(A, repeats=200)
    assert set(every) == set(METRICS)


def test_bootstrap_equals_a_plain_loop() -> None:
    """Brute force with another random stream: ends agree within the bootstrap's error. Student's
    t with 16 degrees of freedom, for variances that are 4 / 5 of the right ones."""
    rng = np.random.default_rng(1)
    draws = [
        float(stats.iqm(np.stack([A[rng.integers(5, size=5), t] for t in range(4)], axis=1)))
        for _ in range(5_000)
    ]
    tail = NormalDist().cdf(-2.120 * (5 / 4) ** 0.5)
    low, high = np.quantile(draws, [tail, 1 - tail])
    found = interval(A, repeats=5_000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)


def test_interval_is_deterministic_and_covers_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = interval(A, repeats=500)
    assert interval(A, repeats=500) == whole
    monkeypatch.setattr("gymnasium_solver.experiments.statistics._CHUNK", 100)
    chunked = interval(A, repeats=500)
    assert (chunked.low, chunked.high) == pytest.approx((whole.low, whole.high), abs=0.05)


def test_one_seed_has_no_interval() -> None:
    found = interval([5.0])
    assert (found.value, found.n) == (5.0, 1)
    assert np.isnan(found.low)


def test_missing_seeds_are_left_out() -> None:
    holes = np.array([[1.0, 4.0], [3.0, np.nan], [5.0, 6.0]])
    assert float(stats.mean(holes)) == pytest.approx((3 + 5) / 2)
    assert float(stats.iqm(holes)) == pytest.approx((3 + 4 + 5) / 3)
    assert interval(holes, repeats=50).n == 2


@pytest.mark.parametrize("bad", [[], [[]], [[[1.0]]], [[1.0, np.nan]]])
def test_bad_scores_are_refused(bad: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"scores|task"):
        interval(bad)


def test_different_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        stats.probability_of_improvement(A, B[:, :2])


def test_ranks() -> None:
    ranks = stats.rank_table({"x": [[1.0, 9.0]], "y": [[2.0, 9.0]], "z": [[0.0, 1.0]]})
    assert ranks == {"x": [2.0, 1.5], "y": [1.0, 1.5], "z": [3.0, 3.0]}


def test_a_difference_and_its_interval() -> None:
    clear = stats.difference([5.0, 6, 7, 8], [1.0, 2, 3, 4])
    assert (clear.value, clear.low, clear.high) == pytest.approx((4.0, 1.766, 6.234), abs=1e-3)
    equal = stats.difference([1.0, 2, 3, 4], [1.0, 2, 3, 4])
    assert equal.low < 0 < equal.high
    assert stats.difference([5.0] * 3, [4.0] * 3) == Estimate(1.0, 1.0, 1.0, 3)
    assert np.isnan(stats.difference([1.0], [2.0, 3.0]).low)


def test_grid_is_where_all_curves_are_known() -> None:
    grid, values = stats.on_grid([[(0, 1.0), (10, 3.0)], [(5, 5.0), (20, None), (40, 12.0)], []], 6)
    assert (grid[0], grid[-1]) == (5, 10)
    assert values[0].tolist() == pytest.approx(np.linspace(2.0, 3.0, 6))
    assert values[1].tolist() == pytest.approx(np.linspace(5.0, 6.0, 6))
    assert stats.on_grid([[], []])[0].size == 0


def test_a_solved_curve_keeps_its_last_value() -> None:
    curves = [[(0, 1.0), (5, 9.0)], [(0, 1.0), (10, 2.0)]]
    grid, values = stats.on_grid(curves, 3, is_final=[True, False])
    assert grid.tolist() == [0.0, 5.0, 10.0]
    assert values[0].tolist() == [1.0, 9.0, 9.0]
    assert stats.on_grid(curves, 3, is_final=[True, True])[0][-1] == 10


def test_band() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, np.nan]])
    middle, low, high = stats.band(values, repeats=200)
    assert middle[0] == 3.0
    assert low[0] < 3.0 < high[0]
    assert np.isnan(middle[1])


def test_times_to_threshold_are_censored() -> None:
    times = stats.time_to_threshold([[(1, 0.0), (5, 9.0)], [(3, 2.0), (8, 3.0)], []], 9.0)
    assert times == [(5.0, True), (8.0, False), (0.0, False)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(1, True), (2, True), (3, True)], 2),
        ([(15_254, True), (22_864, True)], 19_059),
        ([(1, True), (10, False), (10, False)], None),
        ([(2_506, True), (30_000, False)], None),  # half of the seeds never get there
        ([(4, True), (2, False), (6, True)], 6),  # one that never does is later than all
        ([], None),
    ],
)
def test_median_time(times: list[tuple[float, bool]], expected: float | None) -> None:
    assert stats.median_time(times) == expected


def test_curve_measures() -> None:
    found = stats.curve_measures(
        [(0, 9.0), (1, 1.0), (2, 3.0), (3, 2.0), (4, None)], random_score=1.0
    )
    assert found == {
        "strength": 1.0,
        "max_strength": 2.0,
        "final_strength": 1.0,
        "sample_efficiency": pytest.approx((0 / 1 + 2 / 2 + 1 / 3) / 3),
        "stability": pytest.approx(1 - 1 / 2),
    }
    assert stats.curve_measures([(0, 1.0)]) is None
    counted = stats.curve_measures([(1, 1.0), (2, None), (3, 3.0)], updates=[0, 5, 10])
    assert counted is not None
    assert counted["training_efficiency"] == pytest.approx((1 / 1 + 3 / 10) / 4)


def test_consistency() -> None:
    assert stats.consistency(np.array([[1.0, 2.0], [1.0, 2.0]])) == 1.0
    assert stats.consistency(np.array([[0.0, 0.0], [2.0, 2.0]])) == pytest.approx(-1.0)


def test_moving_average() -> None:
    assert stats.moving_average([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]
    assert stats.moving_average([1.0, 3.0], 10) == [1.0, 2.0]
    assert stats.moving_average([], 3) == []
