"""What all tests share."""

import gc
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sampled import mark_the_rest_slow

SLOW = Path(__file__).with_name("slow.txt")
_UNMATCHED = pytest.StashKey[list[str]]()

# The key that signs runs with plugins (runs/machine.py) stays out of the home folder. Processes
# that tests start inherit it.
_settings = tempfile.TemporaryDirectory(prefix="gsolve-settings-")
os.environ["XDG_CONFIG_HOME"] = _settings.name
# Compiled programs too: one folder for all workers of a session, which inherit the variable.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _programs = tempfile.TemporaryDirectory(prefix="gsolve-cache-")
    os.environ["GSOLVE_CACHE_DIR"] = _programs.name

# No fsync in the process of the tests: a tiny training takes a fifth less time, and a power cut
# cannot be tested anyway. Processes that tests start still call it.
_no_fsync: Callable[[int], None] = lambda handle: None  # noqa: E731
setattr(os, "fsync", _no_fsync)  # noqa: B010

# Collection makes a million objects that stay until the end: nothing to look through for garbage,
# then or by each later full collection, which would take half a second.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The same random weights whichever tests came before. Trainings in tests are short: only those
    with `compile: native` are worth compiling, or each agent with the default budget would cost a
    second. The compiler optimises the programs of slow tests, and of those with the mark
    `optimized`: it takes several times as long as without."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    if execution := sys.modules.get("gymnasium_solver.fast.execution"):
        execution.__dict__["WORTH_COMPILING"] = math.inf
    if threads := sys.modules.get("gymnasium_solver.training.threads"):
        threads.__dict__["_n_running"] = 1  # counting the objects frozen here takes 25 ms a run
    if build := sys.modules.get("gymnasium_solver.fast.native.build"):
        is_optimized = any(map(item.get_closest_marker, ("slow", "optimized")))
        build.__dict__["PROGRAM_FLAGS"] = ["-O2" if is_optimized else "-O0", "-c"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what slow.txt lists and what is not in the sample, so that `make test` leaves it out.

    A line is a case, `test_a[1]`, or a test with all its cases, `test_a`.
    """
    lines = {line for line in SLOW.read_text().splitlines() if line and not line.startswith("#")}
    found = set()
    for item in items:
        names = {item.nodeid, item.nodeid.partition("[")[0]} & lines
        if names:
            found |= names
            item.add_marker(pytest.mark.slow)
    mark_the_rest_slow(items)
    # Of files that are here as a whole, every line must name a test.
    in_part = {word.partition("::")[0] for word in config.args if "::" in word}
    files = {item.nodeid.partition("::")[0] for item in items} - in_part
    unmatched = [line for line in lines - found if line.partition("::")[0] in files]
    config.stash[_UNMATCHED] = sorted(unmatched)


@pytest.fixture
def unmatched_slow_lines(pytestconfig: pytest.Config) -> list[str]:
    """Lines of slow.txt that name no test of the files collected."""
    return pytestconfig.stash[_UNMATCHED]
