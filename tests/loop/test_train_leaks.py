"""Trainings in one process leave no open files, threads or processes behind.

`python -m benchmarks.leaks` does this 200 times, on every engine, and prints the memory too.
"""

import shutil
from pathlib import Path

import pytest

from benchmarks.leaks import CASES, TINY, held, train_all
from gymnasium_solver.errors import WriteError
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config


class Deleter(Observer):
    """Breaks the run off by deleting its folder."""

    def on_start(self, run, config, info):
        self.run = run

    def on_epoch(self, row):
        shutil.rmtree(self.run.path)


def test_ten_trainings(tmp_path: Path) -> None:
    quick = [case for case in CASES if case.get("vectorization_mode") in ("envpool", "sync")][:2]
    train_all(quick, tmp_path)
    before = held()
    for _ in range(5):
        train_all(quick, tmp_path)
    assert held()[1:] == before[1:]


def test_trainings_that_break_off(tmp_path: Path) -> None:
    config = build_config({**TINY, **CASES[0]})
    before = None
    for _ in range(4):
        with pytest.raises(WriteError):
            loop.train(config, runs_root=tmp_path, observers=[Deleter()])
        before = before or held()
    assert before is not None
    assert held()[1:] == before[1:]
