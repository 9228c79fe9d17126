"""Lanes: one runs at a time, and alike work is done in one call for all that ask for it."""

import signal
from collections.abc import Hashable
from functools import partial
from typing import Any

from gymnasium_solver.lanes import Lanes, current_lane, lane_for


class Doubling:
    """Doubles numbers, and notes which were doubled together."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def key(self, item: Any) -> Hashable:
        return type(item).__name__

    def __call__(self, items: list[Any]) -> list[Any]:
        if 13 in items:
            raise ValueError("13")
        self.calls.append(items)
        assert lane_for("double") is None  # joint work is not for lanes again
        return [2 * item for item in items]


def doubled(*numbers: Any) -> list[Any]:
    found = []
    for number in numbers:
        lane = lane_for("double")
        found.append(2 * number if lane is None else lane.together("double", number))
    return found


def test_lanes_meet_for_alike_work_and_go_on_when_one_ends() -> None:
    work = Doubling()
    lanes = Lanes({"double": work}).run(
        {"a": lambda: doubled(1, 2), "b": lambda: doubled(3), "c": lambda: doubled(5, 6, 7)}
    )
    assert [lane.result for lane in lanes] == [[2, 4], [6], [10, 12, 14]]
    # The last one asks nobody once it is alone.
    assert work.calls == [[1, 3, 5], [2, 6]]


def test_the_work_that_most_ask_for_comes_first() -> None:
    work = Doubling()
    lanes = Lanes({"double": work}).run(
        {"a": lambda: doubled("x", 1), "b": lambda: doubled(2), "c": lambda: doubled(3)}
    )
    assert [lane.result for lane in lanes] == [["xx", 2], [4], [6]]
    assert work.calls == [[2, 3], ["x"]]


def test_an_error_ends_the_lanes_it_belongs_to() -> None:
    work = Doubling()

    def fails() -> None:
        raise KeyError("mine")

    programs = {"a": fails, "b": lambda: doubled(1, 13), "c": lambda: doubled(2, 13, 4),
                "d": lambda: doubled(3, "x", "y")}  # fmt: skip
    a, b, c, d = Lanes({"double": work}).run(programs)
    assert isinstance(a.error, KeyError)
    assert isinstance(b.error, ValueError)
    assert isinstance(c.error, ValueError)
    assert d.result == [6, "xx", "yy"]


def test_work_that_is_not_listed_is_done_alone() -> None:
    lanes = Lanes({}).run({"a": lambda: doubled(1), "b": lambda: doubled(2)})
    assert [lane.result for lane in lanes] == [[2], [4]]


def test_an_interruption_of_one_lane_reaches_all() -> None:
    # A process started in the background by a shell ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def program() -> None:
        while True:
            lane = current_lane()
            assert lane is not None
            if lane.name == "b":
                signal.raise_signal(signal.SIGINT)
            lane.together("double", 1)

    try:
        lanes = Lanes({"double": Doubling()}).run({"a": program, "b": program, "c": program})
    finally:
        signal.signal(signal.SIGINT, before)
    assert [type(lane.error) for lane in lanes] == [KeyboardInterrupt] * 3
    assert current_lane() is None


def test_the_kind_that_is_listed_last_waits_for_all() -> None:
    first, last = Doubling(), Doubling()

    def program(n_first: int) -> None:
        for i in range(n_first):
            lane = current_lane()
            assert lane is not None
            lane.together("first", i)
        lane = current_lane()
        assert lane is not None
        lane.together("last", n_first)

    Lanes({"first": first, "last": last}).run({str(n): partial(program, n) for n in (0, 3, 1)})
    assert last.calls == [[0, 3, 1]]
