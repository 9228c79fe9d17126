"""The coordinator, with trainings that end at once: results, kills at every moment, extensions."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError, RunError, TrustError
from gymnasium_solver.experiments.search import sweep_report as reports
from gymnasium_solver.experiments.search.journal import Journal
from gymnasium_solver.experiments.search.plan import prepare, read_plan
from gymnasium_solver.experiments.search.run import search_of
from gymnasium_solver.experiments.search.sweep_folder import (
    Sweep,
    create_sweep,
    find_sweep,
    sweep_ids,
    view,
)
from gymnasium_solver.experiments.search.sweep_report import best_lines, draw_all, write_variant
from gymnasium_solver.training.prepare import load_config
from tests.experiments.fake_runs import FakeBackend, score, train

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "draw_all", lambda *_: [])  # slow; one test draws them


PARAMS = {"policy_lr": "log:1e-5..1e-1", "n_epochs": "4,10,20"}


def plan_data(**changes: Any) -> dict[str, Any]:
    return {"config": "CartPole-v1:ppo", "params": PARAMS, "trials": 10, "sampler": "tpe",
            "metric": {"name": "score"}, "set": {"max_env_steps": 10_000},
            "final": {"top": 2, "choose": 2, "seeds": 4}, **changes}  # fmt: skip


def create(tmp_path: Path, **changes: Any) -> Sweep:
    return create_sweep(prepare(read_plan(plan_data(**changes), "test")), tmp_path)


def run(sweep: Sweep, backend: FakeBackend | None = None, **options: Any) -> dict[str, Any]:
    return search_of(sweep, backend=backend or FakeBackend(), **options).run()


def content(sweep: Sweep) -> dict[str, Any]:
    """What two sweeps must have in common."""
    trials = [(t.number, t.latents, t.state, t.value) for t in sweep.trials()]
    configs = [p.read_text() for p in sorted(sweep.path.glob("trials/*/trial.yaml"))]
    return {"trials": trials, "result": sweep.read("result.json"), "configs": configs}


def test_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = create(tmp_path)
    backend = FakeBackend()
    result = run(sweep, backend)
    own = sweep.trials()[0]
    assert own.attrs["own"] is True
    first = load_config(str(sweep.trial_dir(0) / "trial.yaml"))
    assert dict(first)["policy_lr"] == dict(load_config("CartPole-v1:ppo"))["policy_lr"]
    rows = result["final"]
    assert sorted(row["own"] for row in rows) == [False, True]
    assert [len(row["values"]) for row in result["choice"]] == [2, 2]
    chosen = result["choice"][0]["trial"]
    assert chosen in [row["trial"] for row in rows]
    assert rows[0]["value"] == max(row["value"] for row in rows)
    assert result["winner"] == rows[0]["trial"]
    assert abs(math.log10(result["params"]["policy_lr"]) + 3) < 1
    assert len(backend.started) == len(set(backend.started)) == 10 + 2 * 2 + 2 * 4
    # Seeds: different in every trial, the same for all in the final, and none in both.
    seeds = {t.number: json.loads((sweep.run_dir(t.number, 0) / "meta.json").read_text())["seed"]
             for t in sweep.trials()}  # fmt: skip
    assert len(set(seeds.values())) == 10
    fresh = [*result["choice_seeds"], *result["seeds"]]
    assert len({*seeds.values(), *fresh}) == 10 + 2 + 4
    assert "seeds other than the 2 that chose it" in result["verdict"]
    report = sweep.report_path.read_text()
    assert "Final on fresh seeds" in report
    assert "had no part in any choice" in report
    monkeypatch.setattr(reports, "draw_all", draw_all)
    page = reports.sweep_page(view(str(sweep.path))).html()
    assert page.count("data:image/png;base64") == 2
    assert "<svg" in page, "the curves of the final"
    assert 'src="http' not in page
    assert (sweep.path / "params.png").stat().st_size > 10_000
    assert find_sweep("@last", tmp_path).path == sweep.path
    assert run(sweep, again := FakeBackend()) == result  # nothing is run twice
    assert again.started == []


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "stages", "random"])
def test_a_coordinator_that_dies_at_any_moment_changes_nothing(
    tmp_path: Path, sampler: str
) -> None:
    changes: dict[str, Any] = {"sampler": sampler, "jobs": 2}
    whole = create(tmp_path / "whole", **changes)
    run(whole)
    broken = create(tmp_path / "broken", **changes)
    started: list[str] = []
    for n_starts in [0, 1, 2, 3, 6]:
        backend = FakeBackend(crash_after=n_starts)
        with pytest.raises(KeyboardInterrupt):
            run(broken, backend)
        started += backend.started
    run(broken, last := FakeBackend())
    started += last.started
    assert content(broken) == content(whole)
    assert len(started) == len(set(started))


@pytest.mark.parametrize("moment", ["create", "finish"])
def test_a_kill_around_a_line_of_the_journal(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = create(tmp_path / "whole")
    run(whole)
    broken = create(tmp_path / "broken")
    real = getattr(Journal, moment)
    for n, is_before in ((0, True), (1, False), (3, True), (5, False), (9, False)):

        def dies(self: Any, *args: Any, n: int = n, before: bool = is_before, **kwargs: Any) -> Any:
            number = args[0] if moment == "create" else args[0].number
            if before and number == n:
                raise KeyboardInterrupt
            found = real(self, *args, **kwargs)
            if number == n:
                raise KeyboardInterrupt
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Journal, moment, dies)
            with pytest.raises(KeyboardInterrupt):
                run(broken)
        data = (broken.path / "journal.log").read_bytes()
        (broken.path / "journal.log").write_bytes(data + b'{"op_code": 5, "tr')  # torn
    run(broken)
    assert content(broken) == content(whole)


def test_jobs_do_not_change_the_result(tmp_path: Path) -> None:
    """The lag is part of the sweep: resumed with fewer jobs, it suggests the same."""
    two = create(tmp_path / "two", jobs=2)
    run(two)
    one = create(tmp_path / "one", jobs=2)
    run(one, jobs=1)
    assert content(one) == content(two)


def test_failed_trials(tmp_path: Path) -> None:
    def diverges(config: Mapping[str, Any], seed: int) -> float:
        lr = config["policy_lr"]
        lr = lr["start"] if isinstance(lr, Mapping) else lr
        return math.nan if lr > 1e-2 else score(config, seed)

    sweep = create(tmp_path)
    result = run(sweep, FakeBackend(diverges))
    failed = [trial for trial in sweep.trials() if trial.state == "failed"]
    assert failed
    assert failed[0].attrs["reason"] == "not finite"
    assert result["states"]["failed"] == len(failed)
    hopeless = create(tmp_path / "hopeless", trials=30)
    with pytest.raises(RunError, match="all of the first 10 trials failed: not finite"):
        run(hopeless, FakeBackend(lambda config, seed: math.nan))


def test_target_ends_the_search(tmp_path: Path) -> None:
    sweep = create(tmp_path, metric={"name": "score", "target": 200.0}, trials=40)
    run(sweep)
    values = [trial.value or 0.0 for trial in sweep.trials()]
    assert max(values[:-1], default=0.0) < 200 <= values[-1]
    both = create(tmp_path / "b", metric={"name": "score", "target": 200.0}, trials=40, jobs=2)
    run(both)
    reached = next(i for i, t in enumerate(both.trials()) if (t.value or 0) >= 200)
    assert len(both.trials()) == reached + 4  # those that were suggested without seeing it


def test_pruned_trials(tmp_path: Path) -> None:
    sweep = create(tmp_path, prune={"rule": "asha", "first": 0.2}, trials=20)
    result = run(sweep)
    states = [trial.state for trial in sweep.trials()]
    assert "pruned" in states
    pruned = next(trial for trial in sweep.trials() if trial.state == "pruned")
    assert pruned.value is not None
    assert states[result["final"][0]["trial"]] == "complete"


def test_several_seeds_end_early(tmp_path: Path) -> None:
    sweep = create(tmp_path, seeds=4, trials=16)
    run(sweep, backend := FakeBackend())
    counts = [len(trial.attrs["values"]) for trial in sweep.trials()]
    assert counts[0] == 4
    assert min(counts) < 4  # a hopeless one ends early
    assert len([s for s in backend.started if s.startswith("trials")]) == sum(counts)


def test_own_values_are_shown_as_they_were_trained(tmp_path: Path) -> None:
    """ent_coef is 0, which no logarithmic range has."""
    sweep = create(tmp_path, params={"ent_coef": "log:1e-5..0.1", "policy_lr": "log:1e-5..1e-2"})
    run(sweep)
    own = next(row for row in view(str(sweep.path)).rows() if row["own"])
    assert own["params"]["ent_coef"] == 0.0
    lines = sweep.report_path.read_text().splitlines()
    assert any("(own values)" in line and "| 0 |" in line for line in lines)


def test_a_name_is_the_id_and_continues_the_same_sweep(tmp_path: Path) -> None:
    sweep = create(tmp_path, name="mine")
    assert sweep.id == "mine"
    assert create(tmp_path, name="mine").path == sweep.path
    with pytest.raises(RunError, match="exists and searches something else"):
        create(tmp_path, name="mine", trials=11)
    unnamed = create(tmp_path)
    assert unnamed.id.startswith("CartPole-v1-ppo-2")
    assert sweep_ids(tmp_path)[0] == unnamed.id


def test_suggestions_that_see_too_little_are_told() -> None:
    def notes(**changes: Any) -> str:
        return " ".join(prepare(read_plan(plan_data(**changes), "test")).notes)

    assert "use fewer jobs" in notes(jobs=4, trials=20)
    assert "use fewer jobs" not in notes(jobs=4, trials=40)
    assert "use fewer jobs" not in notes(jobs=4, trials=20, sampler="random")


def test_cost_aware_search(tmp_path: Path) -> None:
    sweep = create(tmp_path, cost="env_steps")
    run(sweep)
    found = view(str(sweep.path))
    assert sweep.path / "pareto.png" in draw_all(found)
    assert any(row["on_front"] for row in found.rows())


def test_the_winner_becomes_a_variant(tmp_path: Path) -> None:
    sweep = create(tmp_path)
    result = run(sweep)
    found = view(str(sweep.path))
    lines, provenance = best_lines(found, found.winner)
    path, name = write_variant(f"{tmp_path}/My.yaml:ppo_tuned", found, lines, provenance)
    config = load_config(f"{path}:{name}")
    assert config.n_epochs == result["params"]["n_epochs"]  # type: ignore[attr-defined]
    assert config.eval_freq_epochs == load_config("CartPole-v1:ppo").eval_freq_epochs
    assert sweep.id in path.read_text()
    before = path.read_text()
    write_variant(f"{path}:ppo_other", found, lines, provenance)
    assert path.read_text().startswith(before)
    assert load_config(f"{path}:ppo_other").policy_lr == config.policy_lr  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="has a variant ppo_other already"):
        write_variant(f"{path}:ppo_other", found, lines, provenance)
    with pytest.raises(ConfigError, match=r"expected FILE\.yaml:VARIANT"):
        write_variant("nothing", found, lines, provenance)
    own, _ = best_lines(found, 0)
    assert own["policy_lr"] == "lin_0.003"  # as it is written in the config


def test_only_the_best_keep_their_checkpoints(tmp_path: Path) -> None:
    sweep = create(tmp_path, keep=2, final={"top": 0}, trials=5)
    result = run(sweep)
    kept = [p.parts[-4] for p in sweep.path.glob("trials/*/seed0/checkpoints/100")]
    assert len(kept) == 2
    assert f"{result['winner']:04d}" in kept
    assert run(sweep, again := FakeBackend()) == result
    assert again.started == []


def test_metrics_of_a_run(tmp_path: Path) -> None:
    from gymnasium_solver.experiments.search.plan import MetricPlan
    from gymnasium_solver.experiments.search.ranking import area, measure

    config = {"env_id": "CartPole-v1", "algo_id": "ppo", "max_env_steps": 1000, "policy_lr": 1e-3,
              "n_epochs": 10}  # fmt: skip
    folder = tmp_path / "run"
    train(folder, config, 0)

    def of(name: str, **more: Any) -> float:
        return measure(folder, MetricPlan(name=name, **more), 1000).value

    assert of("score") == of("best") == of("last") == 300.0
    assert of("train/roll/ep_rew/mean") == 299.0
    assert of("train/roll/ep_rew/mean", over="min") == 29.0
    assert of("val/roll/ep_rew/mean", over="mean") == pytest.approx(165.0)
    assert of("steps_to_solve") == pytest.approx(1000 * (1 + 175 / (475 - 22)), rel=0.02)
    assert area([(100, 10.0), (200, 20.0)], 400, 0.0) == pytest.approx((500 + 1500 + 4000) / 400)
    with pytest.raises(RunError, match="has no value of val/nothing"):
        of("val/nothing")


def test_only_one_coordinator(tmp_path: Path) -> None:
    from gymnasium_solver.runs.files import locked

    sweep = create(tmp_path)
    with locked(sweep.path), pytest.raises(RunError, match="still running"):
        run(sweep)


def test_a_strangers_sweep_that_names_code_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_of_a_sweep.py").write_text("")
    sweep = create(tmp_path, set={"max_env_steps": 1000, "plugins": ["module_of_a_sweep"]})
    search_of(sweep)
    sweep.write("signature.json", {"id": sweep.id, "signature": "forged"})
    with pytest.raises(TrustError, match="module_of_a_sweep"):
        search_of(sweep)
    sweep.check_trust(trust=True)
    search_of(sweep)
