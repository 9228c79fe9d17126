"""What all tests share."""

import math
import os
import sys
import tempfile
from pathlib import Path

import pytest

SLOW = Path(__file__).with_name("slow.txt")

# The key that signs runs with plugins (runs/origin.py) stays out of the home folder. Processes that
# tests start inherit it.
_settings = tempfile.TemporaryDirectory(prefix="gsolve-settings-")
os.environ["XDG_CONFIG_HOME"] = _settings.name
# Compiled programs too: one folder for all workers of a session, which inherit the variable.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _programs = tempfile.TemporaryDirectory(prefix="gsolve-cache-")
    os.environ["GSOLVE_CACHE_DIR"] = _programs.name


def pytest_runtest_setup() -> None:
    """Trainings in tests are short: only those with `compile: native` are worth compiling. Without
    this, each agent with the default budget would cost a second."""
    if learner := sys.modules.get("gymnasium_solver.algos.learner"):
        learner.__dict__["WORTH_COMPILING"] = math.inf


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what slow.txt lists, so that `make test` leaves it out."""
    listed = {line for line in SLOW.read_text().splitlines() if line and not line.startswith("#")}
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
