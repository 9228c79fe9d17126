"""`gsolve metrics`, and the metrics of one run."""

from pathlib import Path

import pytest

from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.runs.run import Run
from tests.cli.conftest import Gsolve


@pytest.fixture
def run(here: Path) -> Run:
    made = Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, here / "runs")
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


def test_every_metric_is_listed_with_its_meaning(gsolve: Gsolve) -> None:
    text = gsolve("metrics")
    assert [name for name in METRICS if name not in text] == []
    assert "Fraction of samples outside the clip range" in text


def test_metrics_as_json(gsolve: Gsolve) -> None:
    one, other = gsolve.json("metrics clip_fraction")
    assert one["name"] == "train/opt/ppo/clip_fraction"
    assert one["bounds"] == [0.0, 1.0]
    assert "losses/clipfrac" in one["aliases"]
    assert one["alerts"] == ["clip_fraction_high", "clip_fraction_low"]
    assert other["name"].endswith("clip_fraction_vf")


def test_a_name_of_another_library_is_found(gsolve: Gsolve) -> None:
    assert "train/roll/ep_rew/mean" in gsolve("metrics rollout/ep_rew_mean")
    assert "no metric matches 'nothing like it'" in gsolve("metrics", "nothing like it", code=1)


def test_metrics_of_a_run(run: Run, gsolve: Gsolve) -> None:
    head, first, second = gsolve("run @last --metrics ep_rew_mean train/approx_kl").splitlines()
    assert head.split() == ["metric", "last", "min", "max", "mean", "unit"]
    assert first.split()[:5] == ["train/roll/ep_rew/mean", "9.00", "1.00", "9.00", "4.67"]
    assert second.split()[:2] == ["train/opt/ppo/approx_kl", "-"]
    found = gsolve.json("run @last --metrics")
    assert found["train/roll/ep_rew/mean"] == [[8, 1.0], [16, 4.0], [24, 9.0]]


def test_csv_of_a_run(run: Run, gsolve: Gsolve, tmp_path: Path) -> None:
    printed = gsolve("run @last --csv")
    assert printed.splitlines()[0] == (
        "env_steps,epoch,wall_s,train/roll/ep_rew/mean,train/opt/ppo/approx_kl"
    )
    assert gsolve("run @last --csv out.csv") == "out.csv: 3 rows\n"
    assert (tmp_path / "out.csv").read_text() == printed
    assert "cannot write the CSV file no/such/folder.csv" in gsolve(
        "run @last --csv no/such/folder.csv", code=2
    )


def test_a_run_without_metrics_says_so(here: Path, gsolve: Gsolve) -> None:
    Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, here / "runs")
    assert "no metrics are logged yet" in gsolve("run @last --csv", code=2)
