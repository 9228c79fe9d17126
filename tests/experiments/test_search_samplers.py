"""Samplers and the journal: the same suggestions after a kill, and a journal that survives one."""

import math
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.search import ranking
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED, PRUNED, Journal, Trial
from gymnasium_solver.experiments.search.plan import Plan, PrunePlan, choose_sampler, read_plan
from gymnasium_solver.experiments.search.ranking import front, importances, ranked
from gymnasium_solver.experiments.search.samplers import first_pending, stage_ends, suggest

pytest.importorskip("optuna")

NUMBERS = {"policy_lr": "log:1e-5..1e-2", "n_epochs": "int:3..20", "gamma": "logit:0.9..0.999"}
MIXED = {**NUMBERS, "activation": "tanh,relu", "vf_coef": "0.1..1.0 if activation=relu"}


def plan_of(sampler: str, params: dict[str, str] = NUMBERS, **changes: Any) -> Plan:
    return read_plan({"config": "x", "params": params, "trials": 40, "sampler": sampler,
                      "metric": {"goal": "maximize"}, **changes}, "test")  # fmt: skip


def value(params: dict[str, Any]) -> float:
    lr, epochs = math.log10(params["policy_lr"]), params["n_epochs"]
    return -((lr + 3) ** 2) - ((epochs - 10) / 10) ** 2 - (30 * (params["gamma"] - 0.99)) ** 2


def searched(plan: Plan, n: int) -> list[Trial]:
    """The trials of a search in which every result is known at once."""
    space = plan.space()
    trials: list[Trial] = []
    for number in range(n):
        latents = suggest(plan, {}, trials)
        found = value(space.decode(latents))
        attrs = {"env_steps": 100.0, "cost": 100.0}
        trials.append(Trial(number, latents, COMPLETE, found, attrs))
    return trials


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes", "stages", "grid", "gp"])
@pytest.mark.parametrize("params", [NUMBERS, MIXED], ids=["numbers", "mixed"])
def test_a_resumed_search_suggests_the_same(sampler: str, params: dict[str, str]) -> None:
    if sampler == "gp":
        pytest.importorskip("scipy")
    plan = plan_of(sampler, params, grid_points=3)
    n = 13 if sampler == "gp" else 26
    trials = searched(plan, n)
    for number in (1, 5, n - 1):
        assert suggest(plan, {}, trials[:number]) == trials[number].latents
    other = plan.replace(seed=1)
    if sampler not in ("grid", "stages"):
        assert suggest(other, {}, trials[:5]) != trials[5].latents
    for trial in trials:  # a condition holds where its parameter is searched
        decoded = plan.space().decode(trial.latents)
        assert ("vf_coef" in decoded) == (decoded.get("activation") == "relu")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "stages"])
def test_models_beat_random_search(sampler: str) -> None:
    def best(name: str, seed: int) -> float:
        plan = plan_of(name, seed=seed)
        return ranked(plan, searched(plan, 40))[0].value or 0.0

    seeds = range(5)
    assert sum(best(sampler, s) for s in seeds) > sum(best("random", s) for s in seeds)


def test_what_runs_is_not_seen_before_its_turn() -> None:
    """With several jobs a suggestion depends on the trials `lag` back, not on what is faster."""
    plan = plan_of("tpe", lag=4)
    trials = searched(plan_of("random"), 20)
    assert first_pending(plan, 20) == 17
    known = suggest(plan, {}, trials)
    for trial in trials[17:]:
        trial.state, trial.value = "running", None
    assert suggest(plan, {}, trials) == known
    trials[3].value = 1e6
    assert suggest(plan, {}, trials) != known
    assert first_pending(plan_of("random", lag=4), 20) == 0
    assert first_pending(plan_of("random", lag=4, metric={"target": 1.0}), 20) == 17
    assert first_pending(plan_of("cmaes"), 12) == 8  # 1 + a whole generation of 7
    assert stage_ends(plan_of("stages")) == [12, 32]
    assert first_pending(plan_of("stages", lag=4), 12) == 12


def test_auto() -> None:
    def chosen(params: dict[str, str], **changes: Any) -> str:
        return choose_sampler(plan_of("auto", params, **changes))

    scipy = find_spec("scipy") is not None
    assert chosen(MIXED) == "tpe"
    assert chosen(NUMBERS) == ("gp" if scipy else "tpe")
    assert chosen(NUMBERS, trials=400) == ("cmaes" if scipy else "tpe")
    assert chosen(NUMBERS, cost="env_steps") == "tpe"


def test_grid() -> None:
    params = {"n_epochs": "4,8", "policy_lr": "log:1e-4..1e-2", "tau": "0.1,0.2 if n_epochs=4"}
    space = plan_of("grid", params).space()
    cells = [space.decode(cell) for cell in space.grid(3, {})]
    assert len(cells) == 3 * 2 + 3  # tau only where it is searched, and nothing twice
    assert {cell["policy_lr"] for cell in cells} == {0.0001, 0.001, 0.01}


# -- the journal ----------------------------------------------------------------------------------


def write_trials(folder: Path, n: int = 3) -> list[Trial]:
    plan = plan_of("random", MIXED)
    with Journal(folder) as journal:
        for number in range(n):
            latents = suggest(plan, {}, journal.trials())
            trial = journal.create(number, latents, plan.space(), own=number == 0)
            journal.finish(trial, COMPLETE, float(number), env_steps=10, values=[float(number)])
        journal.create(n, latents, plan.space())
        return journal.trials()


def test_the_journal_keeps_what_was_recorded(tmp_path: Path) -> None:
    before = write_trials(tmp_path)
    with Journal(tmp_path) as journal:
        assert journal.trials() == before
        trial = journal.trials()[3]
        assert trial.state == "running"
        journal.finish(trial, PRUNED, 0.5, rung=100)
    with Journal(tmp_path) as journal:
        last = journal.trials()[3]
        assert (last.state, last.value, last.attrs["rung"]) == (PRUNED, 0.5, 100)
        assert journal.trials()[0].attrs["own"] is True


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_torn_last_line_is_mended(tmp_path: Path, cut: int) -> None:
    before = write_trials(tmp_path)
    path = tmp_path / "journal.log"
    data = path.read_bytes()
    path.write_bytes(data[:-cut])  # the line that creates the last trial
    with Journal(tmp_path) as journal:
        assert journal.trials() == before[:3]
        plan = plan_of("random", MIXED)
        journal.create(3, before[3].latents, plan.space())
        assert [trial.latents for trial in journal.trials()] == [t.latents for t in before]


def test_every_prefix_of_a_journal_can_be_continued(tmp_path: Path) -> None:
    before = write_trials(tmp_path)
    data = (tmp_path / "journal.log").read_bytes()
    for cut in random.Random(0).sample(range(len(data)), 25):
        (tmp_path / "journal.log").write_bytes(data[:cut])
        with Journal(tmp_path) as journal:
            for trial, old in zip(journal.trials(), before, strict=False):
                assert trial.latents == old.latents
                assert trial.state in ("running", old.state)


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    write_trials(tmp_path)
    path = tmp_path / "journal.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{nonsense}\n", *lines[2:]]))
    with pytest.raises(RunError, match="damaged"), Journal(tmp_path) as journal:
        journal.trials()


# -- rules ----------------------------------------------------------------------------------------


def trial_at(number: int, value: float, state: str = COMPLETE, **attrs: Any) -> Trial:
    return Trial(number, {}, state, value, attrs)


def test_rungs_and_values() -> None:
    asha = PrunePlan(rule="asha", first=0.1, eta=3.0)
    assert ranking.rungs(asha, 1000) == [100, 300, 900]
    assert ranking.rungs(PrunePlan(rule="median", first=0.25), 1000) == [250, 500, 750]
    rows = PrunePlan(rule="hyperband", first=2.0, eta=2.0, unit="rows")
    assert ranking.rungs(rows, 10) == [2, 4, 8]
    points = [(90, 1.0), (180, 2.0), (310, 3.0)]
    assert ranking.values_at(asha, 1000, points) == {"100": 2.0, "300": 3.0}
    assert ranking.values_at(rows, 10, points) == {"2": 2.0}


def test_asha_keeps_the_best_third() -> None:
    plan = plan_of("random", prune={"rule": "asha"})
    seen = [trial_at(i, 0.0, rungs={"100": float(i)}) for i in range(8)]
    kept = [v for v in range(-1, 9) if ranking.pruned_at(plan, {"100": v + 0.5}, seen) is None]
    assert kept == [5, 6, 7, 8]  # at most two of the eight are better
    assert ranking.pruned_at(plan, {"100": -9.0}, seen[:1]) is None  # nothing to compare with
    less = plan.replace(metric={"goal": "minimize"})
    assert ranking.pruned_at(less, {"100": 8.5}, seen) == "100"


def test_median_rule() -> None:
    plan = plan_of("random", prune={"rule": "median", "warmup": 3})
    seen = [trial_at(i, 0.0, rungs={"100": float(i), "200": 5.0}) for i in range(5)]
    assert ranking.pruned_at(plan, {"100": 1.9}, seen) == "100"
    assert ranking.pruned_at(plan, {"100": 2.1, "200": 4.0}, seen) == "200"
    assert ranking.pruned_at(plan, {"100": 1.9}, seen[:2]) is None


def test_a_hopeless_trial_needs_no_more_seeds() -> None:
    plan = plan_of("random", seeds=3)
    seen = [trial_at(i, 100.0 + i, values=[99.0 + i, 100.0 + i, 101.0 + i]) for i in range(4)]
    assert ranking.pooled_deviation(seen) == pytest.approx(1.0)
    assert ranking.is_hopeless(plan, [90.0], seen)
    assert not ranking.is_hopeless(plan, [102.0], seen)
    assert not ranking.is_hopeless(plan, [90.0], seen[:0])


def test_few_seeds_are_drawn_to_the_mean() -> None:
    steady = [
        trial_at(i, 10.0 * i, values=[10.0 * i + d for d in (-8, 8, -8, 8)]) for i in range(5)
    ]
    lucky = trial_at(5, 42.0, values=[42.0])
    means = ranking.shrunken([*steady, lucky])
    assert means[5] < means[4]  # 42 with one seed, 40 with four


def test_pareto_front() -> None:
    plan = plan_of("tpe", cost="env_steps")
    points = [(1.0, 10.0), (3.0, 20.0), (2.0, 30.0), (9.0, 40.0), (9.0, 50.0)]
    trials = [trial_at(i, score, cost=cost) for i, (score, cost) in enumerate(points)]
    assert [trial.number for trial in front(plan, trials)] == [0, 1, 3]


def test_importance_finds_the_parameter_that_matters() -> None:
    plan = plan_of("random", {**NUMBERS, "activation": "tanh,relu"})
    space = plan.space()
    trials: list[Trial] = []
    for number in range(60):
        latents = suggest(plan, {}, trials)
        lr = math.log10(space.decode(latents)["policy_lr"])
        trials.append(Trial(number, latents, COMPLETE, -((lr + 3) ** 2)))
    shares = importances(plan, trials)
    assert next(iter(shares)) == "policy_lr"
    assert shares["policy_lr"].value > 0.85
    assert shares["policy_lr"].low > 0.7
    assert sum(one.value for one in shares.values()) == pytest.approx(1)
    few = importances(plan, trials[:9])
    assert few["policy_lr"].high - few["policy_lr"].low > 0.2, "few trials tell little"
    assert importances(plan, trials[:5]) == {}
    failed = [Trial(i, t.latents, FAILED) for i, t in enumerate(trials)]
    assert importances(plan, failed) == {}
