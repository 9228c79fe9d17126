"""Cases of which `make test` runs a sample that changes with the commit, and `make test-slow` the
rest. GSOLVE_TEST_SEED stands for the commit: a case that failed is run again with it."""

import os
import random
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gymnasium_solver import __version__

T = TypeVar("T")


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        found = ""
    return found.strip() or __version__


SEED = os.environ.get("GSOLVE_TEST_SEED") or _commit()


def sampled(cases: Iterable[T], n: int, name: Callable[[T], str] = str) -> list[Any]:
    """The cases as parameters of a test, all but `n` of them marked slow."""
    found = list(cases)
    chosen = set(random.Random(SEED).sample(range(len(found)), min(n, len(found))))
    return [
        pytest.param(case, id=name(case), marks=() if i in chosen else pytest.mark.slow)
        for i, case in enumerate(found)
    ]
