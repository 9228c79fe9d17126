"""`profile`: every moment is charged once, learning is not touched, and the trace is whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.schema import Config
from gymnasium_solver.timing import Timer
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.profile import rows, share_seconds, table, write_trace

ALGOS = {"ppo": "CartPole-v1", "pqn": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_parts_of_an_update_stand_below_it() -> None:
    hand = Hand()
    timer = Timer(True, hand)
    hand.now += 0.5
    with timer.section("update"):
        hand.now += 3.0
        with timer.detail("gradient"):
            hand.now += 4.0
    timer.charge()
    assert rows(timer) == [
        ("update", 0, 1, 7.0),
        ("gradient", 1, 1, 4.0),
        ("rest of the update", 1, 1, 3.0),
        ("rest of the loop", 0, 0, 0.5),
    ]
    assert share_seconds(timer) == {"env": 0, "act": 0, "update": 7.0, "eval": 0}
    assert table(timer)[1].split() == ["update", "93.3%", "7.00", "1", "7000.000"]


def test_the_trace_of_a_long_run_has_its_beginning_and_its_end(tmp_path: Path) -> None:
    hand = Hand()
    timer = Timer(True, hand, n_first_spans=3, n_last_spans=2)
    for _ in range(100):
        with timer.section("env"):
            hand.now += 1.0
    trace = json.loads(write_trace(timer, tmp_path).read_text())
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
    parts = {"env", "act", "store", "update", "eval", "log", "checkpoint"}
    assert all(f" {part} " in words for part in parts)
    trace = json.loads((run.path / "trace.json").read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"collect", "update", "env", "act"} <= names
    found = trace["otherData"]["parts"]
    assert found["update"]["calls"] == found["store"]["calls"]
    assert found["act"]["calls"] == found["env"]["calls"]


@pytest.mark.parametrize("algo_id", ALGOS)
def test_an_update_is_split_into_its_parts(
    algo_id: str, make_config: Callable[..., Config]
) -> None:
    timer = Timer(detailed=True)
    loop.train(make_config(algo_id, ALGOS[algo_id]), runs_root=Path("runs"), timer=timer)
    parts = {"gradient", "optimiser"}
    if algo_id in ("dqn", "sac"):
        parts |= {"sample", "store in the replay"}
    assert parts <= {row.name for row in rows(timer) if row.depth == 1}


def test_a_run_that_breaks_off_is_profiled_too(make_config: Callable[..., Config]) -> None:
    class Broken(Told):
        def on_epoch(self, row: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    told = Broken()
    config = make_config("ppo", "CartPole-v1", profile=True)
    with pytest.raises(KeyboardInterrupt):
        loop.train(config, runs_root=Path("runs"), observers=[told])
    assert len(told.tables) == 1
