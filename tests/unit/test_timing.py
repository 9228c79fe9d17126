"""Timed sections: every moment is charged once, to the innermost section or part."""

from typing import Any

import pytest

from gymnasium_solver.timing import OFF, REST, Timer


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, s: float) -> None:
        self.now += s


def test_the_innermost_section_is_charged() -> None:
    hand = Hand()
    timer = Timer(True, hand)
    hand.wait(0.5)
    with timer.section("update"):
        hand.wait(1.0)
        with timer.detail("gradient"):
            hand.wait(4.0)
        hand.wait(2.0)
    hand.wait(0.25)
    timer.charge()
    assert timer.seconds == {REST: 0.75, "update": 3.0, "gradient": 4.0}
    assert timer.calls == {"update": 1, "gradient": 1}
    first, last = timer.spans
    assert [tuple(span) for span in first] == [("gradient", 1.5, 5.5), ("update", 0.5, 7.5)]
    assert last == []


def test_without_detail_only_sections_are_measured() -> None:
    hand = Hand()
    timer = Timer(False, hand)
    items = [1, 2]
    with timer.section("update"), timer.detail("gradient"):
        hand.wait(4.0)
    assert timer.each("sample", items) is items
    assert timer.seconds == {REST: 0.0, "update": 4.0}
    assert timer.spans == ([], [])
    with OFF.detail("gradient"):
        pass
    assert OFF.calls == {}


def test_a_hot_loop_switches_between_the_parts_of_a_section() -> None:
    hand = Hand()
    timer = Timer(True, hand)
    with timer.section("store"):
        for _ in range(2):
            timer.switch("act")
            hand.wait(1.0)
            timer.switch("env")
            hand.wait(2.0)
            timer.switch()
            hand.wait(4.0)
    hand.wait(8.0)
    timer.charge()
    assert timer.seconds == {REST: 8.0, "store": 8.0, "act": 2.0, "env": 4.0}
    assert timer.calls == {"store": 1, "act": 2, "env": 2}
    spans = [tuple(span) for span in timer.spans[0]]
    assert spans[:2] == [("act", 0.0, 1.0), ("env", 1.0, 3.0)]
    assert spans[-1] == ("store", 0.0, 14.0)


def test_an_error_leaves_the_section_and_its_part() -> None:
    hand = Hand()
    timer = Timer(True, hand)

    def fail() -> None:
        with timer.section("store"):
            timer.switch("env")
            hand.wait(1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    hand.wait(2.0)
    timer.charge()
    assert timer.seconds == {REST: 2.0, "store": 0.0, "env": 1.0}


def test_items_are_charged_and_not_what_is_done_with_them() -> None:
    hand = Hand()
    timer = Timer(True, hand)

    def batches(n: int) -> Any:
        for i in range(n):
            hand.wait(1.0)
            yield i

    got = []
    for item in timer.each("sample", batches(3)):
        got.append(item)
        hand.wait(10.0)
    timer.charge()
    assert got == [0, 1, 2]
    assert timer.seconds == {REST: 30.0, "sample": 3.0}
    assert timer.calls["sample"] == 3


def test_a_long_run_keeps_its_first_and_its_last_spans() -> None:
    hand = Hand()
    timer = Timer(True, hand, n_first_spans=3, n_last_spans=2)
    for _ in range(100):
        with timer.section("env"):
            hand.wait(1.0)
    first, last = timer.spans
    assert [span.start_s for span in first] == [0, 1, 2]
    assert [span.start_s for span in last] == [98, 99]
    assert timer.n_spans == 100
