"""Metrics as curves and as CSV, with the tests and alerts that are events."""

import csv
import io
from pathlib import Path

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import event_rows, write_csv
from gymnasium_solver.runs.run import Run

TEST = {"std": 2.0, "min": 1.0, "max": 9.0, "length_mean": 5.0, "episodes": 4}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, tmp_path)
    for epoch, kl in enumerate((0.5, None, 0.25), start=1):
        made.log_metrics({"env_steps": 10 * epoch, "epoch": epoch, "train/opt/ppo/approx_kl": kl})
    made.log_metrics({"env_steps": 40, "epoch": 4, "val/roll/ep_rew/mean": 7.0})
    made.log_event("alert", name="kl_high", env_steps=20, text="x")
    made.log_event("alert", name="kl_high", env_steps=35, text="x", is_over=True)
    made.log_event("eval", stage="failed_test", env_steps=30, mean=3.0, greedy=True, **TEST)
    made.log_event("eval", stage="test", env_steps=40, mean=6.0, greedy=True, **TEST)
    made.log_event("eval", stage="test", env_steps=40, mean=1.0, greedy=False, **TEST)
    made.log_event("eval", stage="val", env_steps=40, mean=99.0, greedy=True, **TEST)
    made.update_meta(test={"mean": 6.0, "greedy": True}, solved=True, threshold=5.0)
    return made


def test_tests_and_alerts_are_metrics_too(run: Run) -> None:
    found = query.get_metrics(run)
    assert found["test/roll/ep_rew/mean"] == [(30, 3.0), (40, 6.0)]
    assert found["test/roll/ep_rew/best"] == [(30, 3.0), (40, 6.0)]
    assert found["test/roll/ep_len/mean"] == [(30, 5.0), (40, 5.0)]
    assert found["test/solved"] == [(30, 0.0), (40, 1.0)]
    assert found["alert/kl_high"] == [(20, 1.0), (35, 0.0)]
    assert found["val/roll/ep_rew/mean"] == [(40, 7.0)], "from the row, not from the event"


def test_the_test_of_sampled_actions_is_the_verdict_where_the_run_says_so() -> None:
    events = [
        {"kind": "eval", "stage": "test", "env_steps": 1, "mean": m, "greedy": g}
        for m, g in ((1.0, True), (2.0, False))
    ]
    [row] = event_rows(events, {"test": {"mean": 2.0, "greedy": False}, "solved": None})
    assert row["test/roll/ep_rew/mean"] == 2.0
    assert "test/solved" not in row, "there is no threshold"


def test_names_may_be_those_of_other_systems(run: Run) -> None:
    assert list(query.get_metrics(run, ["train/approx_kl", "eval/ep_rew_mean"])) == [
        "train/opt/ppo/approx_kl",
        "val/roll/ep_rew/mean",
    ]
    with pytest.raises(RunError, match=r"no metric 'train/approx_klx'. Did you mean"):
        query.get_metrics(run, ["train/approx_klx"])


def test_csv_has_one_line_for_each_env_step(run: Run) -> None:
    file = io.StringIO()
    assert write_csv(query.get_rows(run), file) == 5
    lines = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [line["env_steps"] for line in lines] == ["10", "20", "30", "35", "40"]
    assert [line["train/opt/ppo/approx_kl"] for line in lines] == ["0.5", "", "0.25", "", ""]
    assert lines[-1]["val/roll/ep_rew/mean"] == "7.0"
    assert lines[-1]["test/roll/ep_rew/mean"] == "6.0"
    assert lines[-1]["epoch"] == "4"


def test_csv_of_chosen_metrics_leaves_out_lines_without_them(run: Run) -> None:
    file = io.StringIO()
    write_csv(query.get_rows(run), file, ["test/*"])
    head, *lines = file.getvalue().splitlines()
    assert head.startswith("env_steps,epoch,wall_s,test/roll/ep_rew/mean")
    assert len(lines) == 2
