"""slow.txt names tests that exist."""

import re
from pathlib import Path

import pytest

LINES = Path(__file__).with_name("slow.txt").read_text().splitlines()
LISTED = [line for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize("test", sorted({line.partition("[")[0] for line in LISTED}))
def test_a_listed_test_exists(test: str) -> None:
    file, *_, name = test.split("::")
    source = (Path(__file__).parent.parent / file).read_text()
    assert re.search(rf"def {name}\(", source), f"{name} is gone: delete its line in tests/slow.txt"


def test_no_line_stands_twice() -> None:
    assert len(LISTED) == len(set(LISTED))
