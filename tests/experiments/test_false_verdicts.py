"""How often verdicts and intervals are right, by simulation (benchmarks/verdicts.py)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import verdicts
from benchmarks.verdicts import DISTRIBUTIONS
from gymnasium_solver.experiments import compare as comparing
from gymnasium_solver.experiments import statistics
from gymnasium_solver.experiments.search import search as searching
from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.plan import read_plan
from gymnasium_solver.experiments.search.ranking import Measured
from gymnasium_solver.experiments.search.sweep_folder import Sweep
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, fewest_seeds, holm

ROUNDS = 4_000
MOST = 0.05 + 2 * (0.05 * 0.95 / ROUNDS) ** 0.5  # a rate of 5 % stays below it in 97 of 100 tries


def words(groups: list[Any], margin: str = "0") -> list[str]:
    results: Any = [
        SimpleNamespace(label=str(i), env_id="e", scores=list(g), threshold=None, score_range=None)
        for i, g in enumerate(groups)
    ]
    return [verdict.word for verdict in comparing.verdicts_of(results, margin)]


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_equal_groups_are_told_apart_in_at_most_5_percent(name: str) -> None:
    rates = {
        (n, k): verdicts.false_verdicts(DISTRIBUTIONS[name], n, k, ROUNDS, seed=n)
        for n in (3, 4, 5, 10)
        for k in (1, 5)
    }
    assert max(rates.values()) <= MOST, rates


def test_the_simulation_has_the_rule_of_compare() -> None:
    rng = np.random.default_rng(3)
    for n, shift in ((3, 3.0), (5, 1.5), (10, 1.0)):
        groups = rng.normal(size=(4, n)) + shift * np.arange(4)[:, None]
        p = holm([float(p) for p in statistics.welch(groups[1:], groups[:1])])
        assert [word == "better" for word in words(list(groups))] == [x <= 0.05 for x in p]


@pytest.mark.parametrize(("n", "effect", "welch"), [(3, 2, 0.36), (5, 1, 0.27), (10, 1, 0.56)])
def test_a_difference_is_seen_as_often_as_by_welch(n: int, effect: float, welch: float) -> None:
    assert verdicts.seen(effect, n, ROUNDS) >= welch - 0.02


@pytest.mark.parametrize("effect", [1, 1.5, 2])
def test_so_many_seeds_would_tell(effect: float) -> None:
    found = verdicts.promised(effect, ROUNDS)
    assert 0.77 <= found["power"] <= 0.90, found


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("metric", ["IQM", "mean"])
def test_intervals_cover_the_truth_of_normal_scores(metric: str, n: int) -> None:
    rounds = 1_000
    found = verdicts.coverage(DISTRIBUTIONS["normal"], verdicts.METRICS[metric], n, rounds)
    error = 2 * (0.05 * 0.95 / rounds) ** 0.5
    assert 0.93 - error <= found <= 0.97 + error


@pytest.mark.parametrize(
    ("name", "metric", "n", "least"),
    [
        ("normal", "median", 5, 0.90), ("saturating", "IQM", 5, 0.90), ("bimodal", "IQM", 5, 0.90),
        ("lognormal", "IQM", 5, 0.89), ("lognormal", "mean", 5, 0.77), ("normal", "IQM", 3, 0.92),
        ("bimodal", "IQM", 3, 0.68),
    ],
)  # fmt: skip
def test_stated_coverage(name: str, metric: str, n: int, least: float) -> None:
    assert verdicts.coverage(DISTRIBUTIONS[name], verdicts.METRICS[metric], n, 400) >= least


def test_groups_that_differ_are_told_apart_from_enough_seeds_on() -> None:
    rng = np.random.default_rng(0)
    for n_groups in (2, 6):
        n_seeds = fewest_seeds(n_groups - 1)
        shifts = 1000.0 * np.arange(n_groups)[:, None]
        found = words(list(shifts + rng.normal(size=(n_groups, n_seeds))))
        assert set(found) == {"better"}
        found = words(list(shifts + rng.normal(size=(n_groups, n_seeds - 1))))
        assert set(found) == {"cannot tell"}


def test_p_values() -> None:
    # R: t.test(c(5, 6, 7, 9), c(1, 2, 3, 3.5))
    p = statistics.welch([5.0, 6, 7, 9], [1.0, 2, 3, 3.5])
    assert float(p) == pytest.approx(max(0.005, 2**-7), rel=0.2)
    assert float(statistics.welch([5.0, 6, 7, 9], [4.0, 2, 3, 8])) == pytest.approx(0.2, abs=0.06)
    assert float(statistics.welch([1.0, 2, 3], [1.0, 2, 3])) == 1.0
    assert float(statistics.welch([1.0] * 3, [2.0] * 3)) == 2**-5, "never certain"
    assert [statistics.student_t(n) for n in (1, 2, 4, 9, 30)] == pytest.approx(
        [12.706, 4.303, 2.776, 2.262, 2.042], rel=1e-3
    )
    assert [fewest_seeds(n) for n in (1, 2, 6, 7, 25, 26)] == [3, 4, 4, 5, 5, 6]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize("finalists", [1, 3, 5])
@pytest.mark.parametrize("seeds", [FEWEST_SEEDS, 5])
def test_a_final_among_equals(
    finalists: int, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every training has a random score: the winner must not be called better than the config's
    own values, whatever it was chosen by."""
    rounds = 400
    rng = np.random.default_rng(finalists + 10 * seeds)
    known: dict[Path, float] = {}

    def measure(folder: Path, *_: Any) -> Measured:
        value = known.setdefault(folder, float(rng.normal()))
        return Measured(value, value, False, 1000, 1.0)

    monkeypatch.setattr(searching, "measure", measure)
    data = {"config": "x", "params": {"policy_lr": "log:1e-5..1e-2"}, "trials": finalists + 1,
            "metric": {"name": "score", "goal": "maximize"},
            "final": {"top": finalists, "seeds": seeds}}  # fmt: skip
    plan = read_plan(data, "test")
    trials = [
        Trial(i, {"policy_lr": 1e-3}, COMPLETE, 1.0, {"own": True} if i == 0 else {})
        for i in range(finalists + 1)
    ]
    better = 0
    for number in range(rounds):
        result = searching.Final(Sweep(tmp_path / str(number)), plan, trials, 1000).result()
        better += result["verdict"].startswith("better")
    assert better / rounds <= 0.05
