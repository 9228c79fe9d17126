"""Experiments without waiting between polls, and without asking git for each of many runs."""

import pytest

from gymnasium_solver.experiments import pool
from gymnasium_solver.runs import machine


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "POLL_S", 0.0)
    monkeypatch.setattr(machine, "git_state", lambda _: (None, b""))
