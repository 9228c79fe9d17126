"""The total budget of a server: what runs counts with what was set aside, what has ended with what
it took."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymnasium_solver.backends import local

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from gymnasium_solver.serve.mcp.allowed import AgentDesk, Refused, Settings
from gymnasium_solver.serve.mcp.budget import Cost, Ledger


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The folders whose processes run."""
    found: set[Path] = set()
    monkeypatch.setattr(local, "is_running", lambda folder: folder in found)
    return found


def run(env_steps: int, wall_s: float) -> Any:
    return SimpleNamespace(env_steps=env_steps, wall_s=wall_s)


def test_what_ends_early_gives_the_rest_back(running: set[Path]) -> None:
    ledger = Ledger(Cost(1000, 3600.0))
    job = Path("job")
    running.add(job)
    ledger.add(job, lambda: [run(150, 60.0)], Cost(600, 1200.0))
    assert ledger.left() == Cost(400, 2400.0)
    ledger.add(job, lambda: [run(150, 60.0)], Cost(100))  # a live edit
    assert ledger.left() == Cost(300, 2400.0)
    running.clear()
    assert ledger.left() == Cost(850, 3540.0)
    running.add(job)  # resumed: only what is new counts
    ledger.add(job, lambda: [run(350, 80.0)], Cost(200, 100.0), Cost(150, 60.0))
    assert ledger.left() == Cost(650, 3440.0)
    running.clear()
    assert ledger.left() == Cost(650, 3520.0)


def desk(tmp_path: Path, **limits: Any) -> AgentDesk:
    return AgentDesk(Settings(tmp_path, **limits))


def test_env_steps_are_lowered_or_refused(tmp_path: Path) -> None:
    both = desk(tmp_path, max_env_steps=500, total_env_steps=800)
    assert both.within_budget({}, 400) == ({}, [], Cost(400))
    fields, notes, cost = both.within_budget({}, 900)
    assert (fields, cost) == ({"max_env_steps": 500}, Cost(500))
    assert "500" in notes[0]
    assert both.within_budget({"max_env_steps": 500}, 9, done=300)[2] == Cost(200)
    for fields, planned, n, said in (
        ({"max_env_steps": 501}, 9, 1, "budget of 500"),
        ({}, 300, 3, "3 x 300 env steps are over the 800 that are left of 800"),
        ({"max_env_steps": 400.5}, 9, 1, "whole number"),
    ):
        with pytest.raises(Refused, match=said):
            both.within_budget(fields, planned, n=n)
    assert desk(tmp_path).within_budget({"max_env_steps": 10**9}, None)[1] == []


def test_time_is_shared_out_among_what_may_run_at_once(tmp_path: Path, running: set[Path]) -> None:
    two = desk(tmp_path, max_trainings=2, total_train_s=3600.0)
    assert two.time_limit(1) == 1800.0
    running.add(Path("job"))
    two.ledger.add(Path("job"), lambda: [run(1, 3600.0)], Cost(0, 3600.0))
    with pytest.raises(Refused, match="used up"):
        two.time_limit(1)
    assert desk(tmp_path).time_limit(2) == math.inf
    assert desk(tmp_path, max_wall_s=60.0, total_train_s=3600.0).time_limit(1) == 60.0
