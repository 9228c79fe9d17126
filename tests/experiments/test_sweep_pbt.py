"""Population based training, with trainings that end at once."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search import pbt
from gymnasium_solver.experiments.search import sweep_report as reports
from gymnasium_solver.experiments.search.plan import generation_ends, prepare, read_plan
from gymnasium_solver.experiments.search.run import search_of
from gymnasium_solver.experiments.search.space import read_param
from gymnasium_solver.experiments.search.sweep_folder import create_sweep, view
from gymnasium_solver.experiments.search.sweep_report import best_lines
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import build_config
from tests.experiments.fake_runs import VAL, FakeBackend, score, train

pytest.importorskip("optuna")


class Population(FakeBackend):
    """Also continues copies: their curve goes on with the score of the new values."""

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> None:
        words = list(argv)
        if "--resume" not in words:
            super().start(argv, folder, cpus=cpus)
            self._remember(folder, score_config(folder))
            return
        if self.crash_after is not None and len(self.started) >= self.crash_after:
            raise KeyboardInterrupt
        self.started.append("/".join(folder.parts[-3:]))
        changes = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        config = score_config(folder)
        for name, _, text in (change.partition("=") for change in changes):
            config[name] = parse_value(text)
        self._remember(folder, config)
        with Run(folder) as run:
            row = {"env_steps": 256 * config["max_epochs"], VAL: score(config, 0)}
            run.log_metrics(row)
            run.update_meta(status="finished", stop_reason="max_epochs")

    @staticmethod
    def _remember(folder: Path, config: Mapping[str, Any]) -> None:
        (folder / "config.yaml").write_text(json.dumps(config))


def score_config(folder: Path) -> dict[str, Any]:
    text = (folder / "config.yaml").read_text()
    if text.startswith("{"):
        found: dict[str, Any] = json.loads(text)
        return found
    return {"env_id": "CartPole-v1", "algo_id": "ppo", "policy_lr": 1e-2, "n_epochs": 4}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "draw_all", lambda *_: [])
    monkeypatch.setattr(
        pbt, "_fresh_score", lambda folder, seed: {"mean": 1.0, "stderr": 0.1, "episodes": 3}
    )


def plan(**changes: Any) -> Any:
    data = {"config": "CartPole-v1:ppo", "sampler": "pbt", "trials": 6, "pbt": {"interval": 0.25},
            "params": {"policy_lr": "log:1e-5..1e-1", "n_epochs": "3..20"},
            "set": {"max_env_steps": 10_240}, "metric": {"name": "last"}, **changes}  # fmt: skip
    return read_plan(data, "test")


def test_the_worst_copy_the_best(tmp_path: Path) -> None:
    sweep = create_sweep(prepare(plan()), tmp_path)
    result = search_of(sweep, backend=Population()).run()
    history = json.loads((sweep.path / "pbt.json").read_text())["generations"]
    assert len(history) == 4
    for before, after in itertools.pairwise(history):
        order = np.argsort([-value for value in before["values"]])
        for member, source in enumerate(after["sources"]):
            copies = member in order[-2:]
            assert (source in order[:2]) if copies else source == member
            if not copies:
                assert after["latents"][member] == before["latents"][member]
    lineage = result["lineage"]
    assert [row["env_steps"] for row in lineage] == [0, 2560, 5120, 7680]
    assert lineage[-1]["params"] == result["params"]
    assert len(list((sweep.path / "pbt").iterdir())) == 1  # only the last generation is kept
    lines, provenance = best_lines(view(str(sweep.path)), result["winner"])
    assert "fresh episodes" in " ".join(provenance)
    config = build_config(lines)  # a schedule, or a number where the winner never copied
    assert config.max_env_steps == 10_240
    assert "early_stop_on_eval_threshold" not in lines  # set for the population only


def test_a_killed_population_continues(tmp_path: Path) -> None:
    whole = create_sweep(prepare(plan()), tmp_path / "whole")
    expected = search_of(whole, backend=Population()).run()
    broken = create_sweep(prepare(plan()), tmp_path / "broken")
    started: list[str] = []
    for n in (0, 3, 4, 5, 2):
        backend = Population(crash_after=n)
        with pytest.raises(KeyboardInterrupt):
            search_of(broken, backend=backend).run()
        started += backend.started
    last = Population()
    found = search_of(broken, backend=last).run()
    started += last.started
    assert {**found, "run": ""} == {**expected, "run": ""}
    assert len(started) == len(set(started)) == 24
    both = [(s.path / "pbt.json").read_text() for s in (whole, broken)]
    assert both[0] == both[1]


def test_what_cannot_change_is_refused() -> None:
    with pytest.raises(ConfigError, match="n_steps cannot change while a run trains"):
        prepare(plan(params={"n_steps": "pow2:32..128"}))
    with pytest.raises(ConfigError, match="population of at least 2"):
        prepare(plan(trials=1))
    assert "n_steps" not in prepare(plan(params={})).plan.params


def test_generations() -> None:
    assert generation_ends(0.25, 10_240, 256) == [10, 20, 30, 40]
    assert generation_ends(3000, 10_240, 256) == [12, 24, 36, 40]
    assert generation_ends(0.1, 100, 256) == [1]


@pytest.mark.parametrize(
    "text",
    ["a=log:1e-4..1", "a=3..20", "a=pow2:2..64", "a=logit:0.9..0.999", "a=x,y,z", "a=0..1.0"],
)
def test_perturbed_values_stay_inside(text: str) -> None:
    param = read_param(text)
    rng = np.random.default_rng(0)
    latent = param.distribution.encode(param.distribution.grid(3)[1])
    seen = {repr(latent)}
    for _ in range(60):
        latent = pbt.perturbed(param, latent, 1.25, rng)
        assert latent == param.latent().clamp(latent)
        seen.add(repr(latent))
    assert len(seen) >= 3


def test_a_copy_is_a_run_of_its_own(tmp_path: Path) -> None:
    config = {"env_id": "CartPole-v1", "algo_id": "ppo", "max_env_steps": 100, "policy_lr": 1e-3,
              "n_epochs": 10}  # fmt: skip
    train(tmp_path / "a", config, 0)
    (tmp_path / "a" / "job.json").write_text("{}")
    pbt.copy_run(tmp_path / "a", tmp_path / "b")
    meta = Run(tmp_path / "b").meta()
    assert (meta["id"], meta["status"]) == ("b", "interrupted")
    assert not (tmp_path / "b" / "job.json").exists()
    assert Run(tmp_path / "a").meta()["status"] == "finished"
