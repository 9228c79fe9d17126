"""`@pytest.mark.sample(n)`: `make test` runs n cases of the test, which change with the commit, and
`make test-slow` the rest. GSOLVE_TEST_SEED stands for the commit: a case that failed is run again
with it."""

import os
import random
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from gymnasium_solver import __version__


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        found = ""
    return found.strip() or __version__


SEED = os.environ.get("GSOLVE_TEST_SEED") or _commit()


def mark_the_rest_slow(items: list[pytest.Item]) -> None:
    """Of every test with the mark `sample`, all cases that are not slow already but those drawn."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, found in cases.items():
        mark = found[0].get_closest_marker("sample")
        assert mark is not None
        for item in random.Random(f"{SEED} {name}").sample(found, len(found))[mark.args[0] :]:
            item.add_marker(pytest.mark.slow)
