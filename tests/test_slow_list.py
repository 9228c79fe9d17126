"""slow.txt names tests that exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.sampled import mark_the_rest_slow

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


def test_the_sample_is_drawn_from_cases_that_are_not_slow() -> None:
    class Case:
        def __init__(self, name: str, *marks: pytest.Mark) -> None:
            self.nodeid, self.marks = f"test_a[{name}]", {mark.name: mark for mark in marks}

        def get_closest_marker(self, name: str) -> pytest.Mark | None:
            return self.marks.get(name)

        def add_marker(self, found: pytest.MarkDecorator) -> None:
            self.marks[found.name] = found.mark

    sample, slow = pytest.mark.sample(3).mark, pytest.mark.slow.mark
    cases: list[Any] = [Case(str(i), sample, *[slow] * (i < 6)) for i in range(10)]
    mark_the_rest_slow(cases)
    assert sum("slow" not in case.marks for case in cases) == 3
