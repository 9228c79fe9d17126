"""`profile`: every moment is charged once, learning is not touched, and the trace is whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.schema import Config
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.profile import LOOP, UPDATE, Profiler

ALGOS = {"ppo": "CartPole-v1", "pqn": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, s: float) -> None:
        self.now += s


def test_the_innermost_part_is_charged() -> None:
    hand = Hand()
    clock = Profiler(hand)
    inner = clock.around(lambda: hand.wait(4.0), "gradient")

    def update() -> None:
        hand.wait(1.0)
        inner()
        hand.wait(2.0)

    hand.wait(0.5)
    clock.around(update, UPDATE)()
    hand.wait(0.25)
    clock.charge()
    assert clock.seconds == {LOOP: 0.75, UPDATE: 3.0, "gradient": 4.0}
    assert [(row.name, row.depth, row.calls, row.seconds) for row in clock.rows()] == [
        ("update", 0, 1, 7.0),
        ("gradient", 1, 1, 4.0),
        (UPDATE, 1, 1, 3.0),
        (LOOP, 0, 0, 0.75),
    ]


def test_in_an_opaque_part_no_other_is_told_apart() -> None:
    hand = Hand()
    clock = Profiler(hand)
    act = clock.around(lambda: hand.wait(1.0), "act")
    clock.around(lambda: (act(), act()), "eval", opaque=True)()
    act()
    assert (clock.seconds["eval"], clock.seconds["act"]) == (2.0, 1.0)
    assert (clock.calls["eval"], clock.calls["act"]) == (1, 1)


def test_an_error_leaves_the_part() -> None:
    hand = Hand()
    clock = Profiler(hand)
    with pytest.raises(ZeroDivisionError):
        clock.around(lambda: 1 / 0, "update", opaque=True)()
    clock.around(lambda: hand.wait(2.0), "env")()
    hand.wait(1.0)
    clock.charge()
    assert (clock.seconds[LOOP], clock.seconds["env"]) == (1.0, 2.0)


def test_an_iterators_items_are_charged_and_not_what_is_done_with_them() -> None:
    hand = Hand()
    clock = Profiler(hand)

    def batches(n: int) -> Any:
        for i in range(n):
            hand.wait(1.0)
            yield i

    got = []
    for item in clock.around_each(batches, "sample")(3):
        got.append(item)
        hand.wait(10.0)
    clock.charge()
    assert got == [0, 1, 2]
    assert clock.seconds == {LOOP: 30.0, "sample": 3.0}


def test_the_trace_of_a_long_run_has_its_beginning_and_its_end(tmp_path: Path) -> None:
    hand = Hand()
    clock = Profiler(hand, n_first_spans=3, n_last_spans=2)
    step = clock.around(lambda: hand.wait(1.0), "env")
    for _ in range(100):
        step()
    trace = json.loads(clock.write_trace(tmp_path).read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["ts"] for event in spans] == [0, 1e6, 2e6, 98e6, 99e6]
    assert {event["dur"] for event in spans} == {1e6}
    [gap] = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert "95 spans left out" in gap["name"]
    assert trace["otherData"]["parts"]["env"] == {"s": 100.0, "calls": 100}


class Told(Observer):
    def __init__(self) -> None:
        self.tables: list[list[str]] = []

    def on_profile(self, table: list[str], trace: Path) -> None:
        self.tables.append(table)


@pytest.mark.parametrize("algo_id", ALGOS)
def test_a_run_learns_the_same_with_a_profile_and_tells_all_its_parts(
    algo_id: str, make_config: Callable[..., Config], weight_hash: Callable[..., str]
) -> None:
    config = make_config(algo_id, ALGOS[algo_id], max_epochs=4, eval_freq_epochs=2)
    told = Told()
    plain = loop.train(config, runs_root=Path("plain"), observers=[told])
    assert told.tables == []
    assert not (plain.path / "trace.json").exists()
    run = loop.train(config.replace(profile=True), runs_root=Path("timed"), observers=[told])
    assert weight_hash(run) == weight_hash(plain)
    [table] = told.tables
    words = " ".join(" ".join(table).split())
    parts = {"env", "act", "store", "update", "gradient", "optimiser", "eval", "log", "checkpoint"}
    if algo_id in ("dqn", "sac"):
        parts |= {"sample", "store in the replay"}
    assert all(f" {part} " in words for part in parts)
    trace = json.loads((run.path / "trace.json").read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"collect", "update", "env", "act", "gradient"} <= names
    found = trace["otherData"]["parts"]
    assert found["update"]["calls"] == found["store"]["calls"]
    assert found["act"]["calls"] == found["env"]["calls"]


def test_a_run_that_breaks_off_is_profiled_too(make_config: Callable[..., Config]) -> None:
    class Broken(Told):
        def on_epoch(self, row: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    told = Broken()
    config = make_config("ppo", "CartPole-v1", profile=True)
    with pytest.raises(KeyboardInterrupt):
        loop.train(config, runs_root=Path("runs"), observers=[told])
    assert len(told.tables) == 1
