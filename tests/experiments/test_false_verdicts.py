"""How often equal groups are called different, by simulation: at most about one time in twenty."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.experiments import compare as comparing
from gymnasium_solver.experiments import statistics
from gymnasium_solver.experiments.search import search as searching
from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.plan import read_plan
from gymnasium_solver.experiments.search.ranking import Measured
from gymnasium_solver.experiments.search.sweep_folder import Sweep
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, fewest_seeds, holm, permutation_p

ROUNDS = 400
MOST = 0.05 + 2 * (0.05 * 0.95 / ROUNDS) ** 0.5  # a rate of 5 % stays below it in 97 of 100 tries


@pytest.fixture(autouse=True)
def _few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("interval", "improvement_interval"):
        monkeypatch.setattr(statistics, name, partial(getattr(statistics, name), repeats=300))


def is_called_different(groups: list[np.ndarray]) -> bool:
    results: Any = [
        SimpleNamespace(label=str(i), env_id="e", scores=list(g), iqm=statistics.interval(g))
        for i, g in enumerate(groups)
    ]
    return any(verdict.word != "cannot tell" for verdict in comparing.verdicts_of(results))


@pytest.mark.parametrize(
    ("n_seeds", "n_groups"), [(FEWEST_SEEDS, 2), (7, 2), (FEWEST_SEEDS, 3), (5, 6)]
)
def test_equal_groups(n_seeds: int, n_groups: int) -> None:
    rng = np.random.default_rng(n_seeds + 100 * n_groups)
    rounds = [rng.normal(size=(n_groups, n_seeds)) for _ in range(ROUNDS)]
    assert np.mean([is_called_different(list(groups)) for groups in rounds]) <= MOST


def test_groups_that_differ_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    for n_groups in (2, 6):
        n_seeds = fewest_seeds(n_groups - 1)
        shifts = 10.0 * np.arange(n_groups)[:, None]
        assert is_called_different(list(shifts + rng.normal(size=(n_groups, n_seeds))))
        assert not is_called_different(list(shifts + rng.normal(size=(n_groups, n_seeds - 1))))


def test_permutations() -> None:
    assert permutation_p([5.0, 6, 7, 8], [1.0, 2, 3, 4]) == pytest.approx(2 / 70)
    assert permutation_p([1.0, 2, 3], [1.0, 2, 3]) == 1.0
    assert permutation_p([1.0, 1], [1.0, 1]) == 1.0
    drawn = permutation_p(np.arange(12.0), np.arange(12.0) + 0.5)  # too many for all of them
    assert 0.6 < drawn < 1.0
    assert [fewest_seeds(n) for n in (1, 2, 6, 7, 23)] == [4, 5, 5, 6, 6]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize("finalists", [1, 3, 5])
@pytest.mark.parametrize("seeds", [FEWEST_SEEDS, 5])
def test_a_final_among_equals(
    finalists: int, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every training has a random score: the winner must not be called better than the config's
    own values, whatever it was chosen by."""
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
    for number in range(ROUNDS):
        result = searching.Final(Sweep(tmp_path / str(number)), plan, trials, 1000).result()
        better += result["verdict"].startswith("better")
    assert better / ROUNDS <= 0.05
