"""Metrics as curves, tables and CSV, with the tests and alerts that are events."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.curves import event_rows, write_csv
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import MetricTable, smoothed, thinned

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
    found = query.get_metrics(run, ["train/approx_kl", "eval/ep_rew_mean"])
    assert list(found) == ["train/opt/ppo/approx_kl", "val/roll/ep_rew/mean"]
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


# -- for drawing -----------------------------------------------------------------------------------


def test_a_table_reads_what_was_added_and_starts_anew_after_a_rewrite(tmp_path: Path) -> None:
    run = Run.create("seed: 1\n", {"env_id": "E", "algo_id": "ppo"}, tmp_path)
    table = MetricTable(run)
    for i in range(1, 4):
        run.log_metrics({"env_steps": i, "wall_s": 2.0 * i, "epoch": i, "a": i, "b": None})
    table.refresh()
    x, y = table.series("a", "wall_s")
    assert (x.tolist(), y.tolist()) == ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert np.isnan(table.series("b")[1]).all()
    run.log_metrics({"env_steps": 4, "a": 10.0})  # without a wall time
    table.refresh()
    assert table.series("a")[0].tolist() == [1, 2, 3, 4]
    assert table.series("a", "wall_s")[0].tolist() == [2, 4, 6]
    assert table.series("a", "a")[0].tolist() == [1, 2, 3, 10]
    save_checkpoint(run.checkpoints_dir, 2, {}, {}, {})
    run.begin_resume(2)
    table.refresh()
    assert table.n_rows == 2
    assert table.series("a")[1].tolist() == [1, 2]
    assert table.series("no such")[0].tolist() == []
    run.close()


def test_smoothing_has_no_pull_and_never_changes_the_past() -> None:
    values = np.array([10.0, 0.0, math.nan, 4.0, 4.0])
    line = smoothed(values, 0.9)
    assert line[0] == 10.0
    assert math.isnan(line[2])
    assert line[3] == pytest.approx((0.81 * 10 + 4) / (0.81 + 0.9 + 1))
    assert np.array_equal(smoothed(values[:3], 0.9), line[:3], equal_nan=True)
    constant = smoothed(np.full(50, 7.0), 0.99)
    assert np.allclose(constant, 7.0)
    assert smoothed(values, 0.0) is values


@pytest.mark.parametrize("n", [11, 100, 997])
def test_thinning_keeps_ends_and_extremes(n: int) -> None:
    y = np.random.default_rng(n).normal(size=n)
    y[n // 2] = math.nan
    thin = thinned(np.arange(float(n)), y, 10)
    assert len(thin.x) == 10
    assert thin.x[-1] == n - 1
    assert thin.low is not None
    assert thin.high is not None
    assert np.nanmin(thin.low) == np.nanmin(y)
    assert np.nanmax(thin.high) == np.nanmax(y)
    short = thinned(np.arange(5.0), np.arange(5.0), 10)
    assert short.low is None
