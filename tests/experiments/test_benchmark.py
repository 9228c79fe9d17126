"""Declared benchmarks: the file, and the table that comes from run folders only."""

import csv
import json
import math
import shlex
from pathlib import Path

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.benchmark import (
    read_benchmark,
    rows_of,
    take_up,
    verdict,
    write_tables,
)
from gymnasium_solver.experiments.experiment import CONFIGS, FOLDER
from gymnasium_solver.experiments.statistics import Estimate
from gymnasium_solver.runs.metrics import TRAIN, VAL
from tests.experiments.fake_runs import finished

ROOT = Path(__file__).parents[2]
FILE = """
name: mine
seeds: 4
set: {max_env_steps: 4000}
entries:
  - {config: "CartPole-v1:ppo", reference: {score: 300, source: them}}
  - {config: "CartPole-v1:ppo", label: wide, set: {hidden_dims: [128]}, threshold: 200}
"""


def declare(folder: Path, text: str = FILE) -> Path:
    path = folder / "bench.yaml"
    path.write_text(text)
    return path


def test_the_file(tmp_path: Path) -> None:
    found = read_benchmark(declare(tmp_path))
    assert (found.name, found.seeds) == ("mine", [1, 2, 3, 4])
    first, second = found.entries
    assert (first.reference, first.source) == (300.0, "them")
    assert first.changes == {"max_env_steps": 4000}
    assert (second.label, second.threshold) == ("wide", 200)
    assert second.changes == {"max_env_steps": 4000, "hidden_dims": [128]}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("3", "expected `key: value` lines"),
        ("entries: []", "expected a list of configs"),
        ("entrys: [a]\n", "entrys: unknown key. Did you mean entries"),
        ("entries: [{confg: a}]", "confg: unknown key. Did you mean config"),
        ("entries: [{label: a}]", "needs `config: NAME`"),
        ("entries: [a, a]", "given twice: a"),
        ("entries: [{suite: toy_txt}]", "Did you mean toy_text"),
        ("seeds: x\nentries: [a]", "seeds: expected a number"),
        ("set: {seed: 3}\nentries: [a]", "use `seeds`"),
        ("entries: [{config: a, overlay: 3}]", "overlay: expected a name or a list of names"),
        ("entries: [{config: a, reference: {score: x}}]", "reference: expected"),
        ("entries: [{config: a, threshold: x}]", "threshold: expected a number"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_benchmark(declare(tmp_path, text))


def test_an_entry_takes_overlays(tmp_path: Path) -> None:
    """They are laid under its own changes, and the table's command repeats them."""
    text = (
        "name: mine\nseeds: 4\nentries: [{config: 'CartPole-v1:ppo', overlay: [wide, quick], "
        "set: {max_env_steps: 640, policy_lr: {start: 1.0e-3, end: 0}}}]"
    )
    declared = read_benchmark(declare(tmp_path, text))
    assert declared.entries[0].label == "CartPole-v1:ppo wide quick"
    experiment = take_up(declared, tmp_path)
    config, _ = read_file(experiment.path / CONFIGS / experiment.members[0].config)
    assert (config["hidden_dims"], config["test_episodes"]) == ([256, 256], 10)
    assert config["max_env_steps"] == 640
    (row,) = rows_of(declared, experiment)
    assert "CartPole-v1:ppo --overlay wide quick --max-env-steps 640" in row["command"]
    flags = shlex.split(row["command"])
    assert flags[flags.index("--policy-lr") + 1].startswith("{")


def test_the_shipped_file_has_every_classic() -> None:
    from gymnasium_solver.config.find import find_configs

    found = read_benchmark(ROOT / "benchmarks" / "classics.yaml")
    classics = {e.name for e in find_configs() if e.suite in ("classic_control", "toy_text")}
    assert {entry.config for entry in found.entries} == classics
    assert len(found.seeds) == 5


def test_the_table_comes_from_run_folders(tmp_path: Path) -> None:
    declared = read_benchmark(declare(tmp_path))
    experiment = take_up(declared, tmp_path)
    assert experiment == take_up(declared, tmp_path)  # the second time it is there
    assert [row["score"] for row in rows_of(declared, experiment)] == [None, None]
    scores = dict(zip(experiment.members, (400.0, 410.0, 420.0, 410.0, 100.0, 250.0), strict=False))
    for member, score in scores.items():
        last = {"score": score - 1, "env_steps": 4000}
        run = finished(tmp_path, member.run, score, member.seed, threshold=475.0,
                       last_eval=last, env_steps=4000, wall_s=3.0)  # fmt: skip
        run.log_metrics({"env_steps": 10, "wall_s": 1.0, "val/roll/ep_rew/mean": score})
    first, second = rows_of(declared, experiment)
    assert first["score"]["value"] == pytest.approx(410.0)
    assert [first[name] for name in ("seeds", "n_solved", "verdict")] == [4, 0, "above"]
    told = [second[name] for name in ("status", "n_solved", "verdict")]
    assert told == ["2 of 4 finished", 1, ""]
    assert second["command"].endswith("--max-env-steps 4000 --hidden-dims '[128]' --seed <seed>")
    files = write_tables(declared, experiment, tmp_path / "out")
    assert [path.name for path in files] == [
        "mine.md", "mine.csv", "mine.json", "mine-curves.csv", "mine.png",
    ]  # fmt: skip
    text = files[0].read_text()
    assert "| CartPole-v1:ppo | 4 of 4 finished | 400.0 410.0 420.0 410.0 | 410.0 |" in text
    assert "| 410.0 | 409.0 | 475 |" in text, "mean of the best, of the final policies, threshold"
    assert "300.0 (them)" in text
    table = list(csv.DictReader(files[1].open()))
    assert [row["label"] for row in table] == ["CartPole-v1:ppo", "wide"]
    data = json.loads(files[2].read_text(), parse_constant=pytest.fail)
    assert data["rows"][0]["score"]["n"] == 4
    curves = list(csv.DictReader(files[3].open()))
    assert [(row["label"], row["seed"], row["val"]) for row in curves[3:5]] == [
        ("CartPole-v1:ppo", "4", "410"), ("wide", "1", "100"),
    ]  # fmt: skip


@pytest.mark.parametrize("logged", [VAL, TRAIN])
def test_curves_are_those_of_training_where_nothing_was_evaluated(
    logged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = read_benchmark(declare(tmp_path))
    experiment = take_up(declared, tmp_path)
    first = experiment.members[0]
    run = finished(tmp_path, first.run, 400.0, first.seed)
    run.log_metrics({"env_steps": 10, "wall_s": 1.0, logged: 400.0})
    found = []
    draw = lambda groups, path, metric: found.append(metric)  # noqa: E731
    monkeypatch.setattr("gymnasium_solver.experiments.benchmark.draw", draw)
    write_tables(declared, experiment, tmp_path / "out")
    assert found == [logged]


def test_one_seed_has_no_interval_in_json(tmp_path: Path) -> None:
    declared = read_benchmark(declare(tmp_path))
    experiment = take_up(declared, tmp_path)
    first = experiment.members[0]
    finished(tmp_path, first.run, 400.0, first.seed)
    _, _, table, *_ = write_tables(declared, experiment, tmp_path / "out")
    data = json.loads(table.read_text(), parse_constant=pytest.fail)
    score = data["rows"][0]["score"]
    assert (score["value"], score["low"], score["high"]) == (400.0, None, None)
    assert data["rows"][0]["finals"] == [400.0], "the final policy was tested"


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    take_up(read_benchmark(declare(tmp_path)), tmp_path)
    changed = read_benchmark(declare(tmp_path, FILE.replace("[128]", "[64]")))
    with pytest.raises(ConfigError, match="other settings of wide"):
        take_up(changed, tmp_path)
    more = read_benchmark(declare(tmp_path, FILE.replace("seeds: 4", "seeds: 5")))
    with pytest.raises(ConfigError, match="seeds"):
        take_up(more, tmp_path)
    assert take_up(changed, tmp_path, is_new_allowed=False).id == "benchmark-mine"


def test_verdicts() -> None:
    score = Estimate(2.0, 1.5, 2.5, 4)
    found = [verdict(score, reference) for reference in (1.0, 2.2, 3.0, None)]
    assert found == ["above", "within the interval", "below", ""]
    assert verdict(Estimate(2.0, 1.5, 2.5, 2), 1.0) == "cannot tell: 2 seeds"
    assert verdict(None, 1.0) == ""


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(declare(tmp_path))
    assert main(["benchmark", path, "--list", "--runs-dir", str(tmp_path)]) == 0
    assert "8 runs" in capsys.readouterr().out
    assert main(["benchmark", path, "--table", "--runs-dir", str(tmp_path)]) == 2
    assert "has not been run" in capsys.readouterr().err
    assert not (tmp_path / FOLDER).exists()


def test_a_final_policy_without_a_finite_return_is_shown_as_it_is(tmp_path: Path) -> None:
    """And a curve of more points than are kept ends where the training did."""
    declared = read_benchmark(declare(tmp_path))
    experiment = take_up(declared, tmp_path)
    first = experiment.members[0]
    last = {"score": math.nan, "env_steps": 150}
    run = finished(tmp_path, first.run, 400.0, first.seed, last_eval=last)
    for step in range(1, 151):
        run.log_metrics({"env_steps": step, "wall_s": 1.0, "val/roll/ep_rew/mean": 1.0})
    text, _, table, curves, *_ = write_tables(declared, experiment, tmp_path / "out")
    assert json.loads(table.read_text(), parse_constant=pytest.fail)["rows"][0]["finals"] == [None]
    assert "| 400.0 | 400.0 |  | 400.0 | - |" in text.read_text()
    steps = [row["env_steps"] for row in csv.DictReader(curves.open())]
    assert (len(steps), steps[-1]) == (75, "150")
