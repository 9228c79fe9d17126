"""`gsolve metrics`, and the metrics of one run."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.runs.run import Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    made = Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, tmp_path / "runs")
    for epoch in (1, 2, 3):
        made.log_metrics(
            {
                "env_steps": 8 * epoch,
                "epoch": epoch,
                "train/roll/ep_rew/mean": float(epoch**2),
                "train/opt/ppo/approx_kl": None,
            }
        )
    return made


def test_every_metric_is_listed_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics"]) == 0
    text = capsys.readouterr().out
    assert [name for name in METRICS if name not in text] == []
    assert "Fraction of samples outside the clip range" in text


def test_metrics_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "clip_fraction", "--json"]) == 0
    one, other = json.loads(capsys.readouterr().out)
    assert one["name"] == "train/opt/ppo/clip_fraction"
    assert one["bounds"] == [0.0, 1.0]
    assert "losses/clipfrac" in one["aliases"]
    assert one["alerts"] == ["clip_fraction_high", "clip_fraction_low"]
    assert other["name"].endswith("clip_fraction_vf")


def test_a_name_of_another_library_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "rollout/ep_rew_mean"]) == 0
    assert "train/roll/ep_rew/mean" in capsys.readouterr().out
    assert main(["metrics", "nothing like it"]) == 1
    assert "no metric matches 'nothing like it'" in capsys.readouterr().err


def test_metrics_of_a_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "@last", "--metrics", "ep_rew_mean", "train/approx_kl"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["metric", "last", "min", "max", "mean", "unit"]
    assert first.split()[:5] == ["train/roll/ep_rew/mean", "9.00", "1.00", "9.00", "4.67"]
    assert second.split()[:2] == ["train/opt/ppo/approx_kl", "-"]
    assert main(["run", "@last", "--metrics", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["train/roll/ep_rew/mean"] == [[8, 1.0], [16, 4.0], [24, 9.0]]


def test_csv_of_a_run(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "@last", "--csv"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == (
        "env_steps,epoch,wall_s,train/roll/ep_rew/mean,train/opt/ppo/approx_kl"
    )
    assert main(["run", "@last", "--csv", "out.csv"]) == 0
    assert capsys.readouterr().out == "out.csv: 3 rows\n"
    assert (tmp_path / "out.csv").read_text() == printed
    assert main(["run", "@last", "--csv", "no/such/folder.csv"]) == 2
    assert "cannot write the CSV file no/such/folder.csv" in capsys.readouterr().err


def test_a_run_without_metrics_says_so(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, tmp_path / "runs")
    assert main(["run", "@last", "--csv"]) == 2
    assert "no metrics are logged yet" in capsys.readouterr().err
