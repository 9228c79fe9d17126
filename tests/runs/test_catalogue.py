"""The list of runs in memory, and curves that are read as they grow."""

import json
import math
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from gymnasium_solver.runs import catalogue as module
from gymnasium_solver.runs.catalogue import Catalogue
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import MetricTable, smoothed, thinned


def make(root: Path, name: str, **meta: object) -> Run:
    run = Run.create("seed: 1\n", {"env_id": "E", "algo_id": "ppo", "seed": 1}, root, name=name)
    run.update_meta(**({"status": "finished"} | meta))
    return run


def settle(run: Run) -> None:
    """As if its files had been written a while ago."""
    past = time.time_ns() - 60 * 10**9
    for path in (run.meta_path, run.checkpoints_dir, run.path):
        os.utime(path, ns=(past, past))


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make(tmp_path, f"run{i}") for i in range(5)]
    for run in runs:
        settle(run)
    found = Catalogue(tmp_path)
    first = found.since(None)
    assert len(first.runs) == 5
    assert first.is_reset
    read = []
    original = module.summary_or_broken

    def counted(run: Run) -> object:
        read.append(run.id)
        return original(run)

    monkeypatch.setattr(module, "summary_or_broken", counted)
    assert found.since(first.cursor).runs == []
    assert read == []
    runs[2].update_meta(episodes=7)
    later = found.since(first.cursor)
    assert [run.episodes for _, run in later.runs] == [7]
    assert read == ["run2"]
    shutil.rmtree(runs[0].path)
    last = found.since(later.cursor)
    assert last.removed == [n for n, run in first.runs if run.id == "run0"]
    assert found.since(first.cursor).cursor == last.cursor


def test_a_run_whose_process_ends_is_noticed_without_a_write(tmp_path: Path) -> None:
    run = make(tmp_path, "live", status="running", pid=os.getpid(), pid_started=None)
    settle(run)
    found = Catalogue(tmp_path)
    first = found.since(None)
    assert first.runs[0][1].status == "running"
    meta = json.loads(run.meta_path.read_text()) | {"pid": 2**30}
    run.meta_path.write_text(json.dumps(meta))
    settle(run)
    assert found.since(first.cursor).runs[0][1].status == "killed"


def test_two_writes_within_the_resolution_of_the_clock_are_both_seen(tmp_path: Path) -> None:
    run = make(tmp_path, "fast")
    found = Catalogue(tmp_path)
    first = found.since(None)
    before = run.meta_path.stat()
    text = run.meta_path.read_text().replace('"seed": 1', '"seed": 2')
    with run.meta_path.open("r+") as file:  # the same inode, size and times
        file.write(text)
    os.utime(run.meta_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [r.seed for _, r in found.since(first.cursor).runs] == [2]


def test_configs_are_read_again_after_a_change(tmp_path: Path) -> None:
    run = make(tmp_path, "one")
    found = Catalogue(tmp_path)
    assert [r.id for r in found.select(["seed=1"])] == ["one"]
    assert len(found.select(["policy_lr=2"])) == 0
    run.write_config("seed: 1\npolicy_lr: 2\n")
    run.update_meta(epoch=3)
    assert [r.id for r in found.select(["policy_lr=2"])] == ["one"]


def test_a_table_reads_what_was_added_and_starts_anew_after_a_rewrite(tmp_path: Path) -> None:
    run = make(tmp_path, "one")
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
