"""slow.txt names tests that exist."""

import re
from pathlib import Path

LINES = Path(__file__).with_name("slow.txt").read_text().splitlines()
LISTED = [line for line in LINES if line and not line.startswith("#")]


def test_every_listed_test_exists() -> None:
    gone = []
    for test in sorted({line.partition("[")[0] for line in LISTED}):
        file, *_, name = test.split("::")
        source = (Path(__file__).parent.parent / file).read_text()
        if not re.search(rf"def {name}\(", source):
            gone.append(test)
    assert not gone, "delete these lines of tests/slow.txt"


def test_every_listed_case_exists(unmatched_slow_lines: list[str]) -> None:
    assert not unmatched_slow_lines, "tests/slow.txt: there is no such test or case"


def test_no_line_stands_twice() -> None:
    assert len(LISTED) == len(set(LISTED))
