"""Several observers: in order, none stops training by failing, any may ask for something."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import observers as registry
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Observer, Observers, register_observer

Call = Callable[..., Any]


class Ear(Observer):
    def __init__(self, name: str, heard: list[str]):
        self.name, self.heard = name, heard

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.heard.append(f"{self.name}{row['epoch']}")

    def on_message(self, level: str, text: str) -> None:
        self.heard.append(f"{self.name} {level}: {text}")


class Broken(Observer):
    def __init__(self) -> None:
        self.calls = 0

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.calls += 1
        raise ValueError("no such thing")


def go(config: Config, *observers: Observer) -> Run:
    return loop.train(config, runs_root=Path("runs"), observers=observers)


def test_observers_are_called_in_order(make_config: Call) -> None:
    heard: list[str] = []
    go(make_config("ppo", "Bandit-v0", max_epochs=2), Ear("a", heard), Ear("b", heard))
    assert heard == ["a1", "b1", "a2", "b2"]


def test_a_failing_observer_is_reported_once_and_never_stops_training(
    make_config: Call, weight_hash: Call, events: Call
) -> None:
    config = make_config("ppo", "Bandit-v0", max_epochs=5)
    plain = go(config)
    heard: list[str] = []
    broken = Broken()
    run = go(config, broken, Ear("a", heard))
    assert weight_hash(run) == weight_hash(plain)
    assert run.meta()["status"] == "finished"
    assert broken.calls == 3, "after three failures it is left alone"
    told = [text for text in heard if "warning" in text]
    assert told == [
        "a warning: observer Broken failed in on_epoch, ValueError: no such thing",
        "a warning: observer Broken failed 3 times and is no longer called",
    ]
    assert [text for text in heard if text not in told] == ["a1", "a2", "a3", "a4", "a5"]
    assert [e["text"] for e in events(run, "observer_failed")] == [
        t[len("a warning: ") :] for t in told
    ]


class Asks(Observer):
    """Asks for one thing, at the end of an epoch."""

    def __init__(self, what: str, epoch: int):
        self.what, self.epoch = what, epoch

    def on_start(self, run: Any, config: Any, info: Any) -> None:
        self.control = info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epoch:
            if self.what == "stop":
                self.control.stop("it has seen enough")
            else:
                getattr(self.control, self.what)()


def test_a_requested_stop_can_be_resumed_exactly(
    make_config: Call, resume: Call, weight_hash: Call, learning_rows: Call
) -> None:
    config = make_config("ppo", "CartPole-v1", max_epochs=5, policy_lr="lin_0.01")
    whole = go(config)
    run = go(config, Asks("stop", 2))
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("interrupted", "requested", 2)
    assert (meta["stop_detail"], meta["solved"]) == ("it has seen enough", False)
    assert "a stop was requested (it has seen enough)" in run.report_path.read_text()
    resume(run.id)
    assert weight_hash(run) == weight_hash(whole)
    assert learning_rows(run) == learning_rows(whole)
    assert (run.meta()["stop_reason"], run.meta()["stop_detail"]) == ("max_epochs", None)


def test_a_stop_asked_for_in_the_last_epoch_lets_the_run_finish(make_config: Call) -> None:
    run = go(make_config("ppo", "Bandit-v0", max_epochs=2), Asks("stop", 2))
    assert (run.meta()["status"], run.meta()["stop_reason"]) == ("finished", "max_epochs")


def test_a_checkpoint_and_an_evaluation_can_be_asked_for(
    make_config: Call, events: Call, weight_hash: Call
) -> None:
    config = make_config("ppo", "CartPole-v1", max_epochs=5)
    plain = go(config)
    run = go(config, Asks("checkpoint", 2), Asks("evaluate", 3))
    assert [(e["epoch"], e["reason"]) for e in events(run, "checkpoint")] == [
        (2, "periodic"),
        (4, "best"),
        (5, "last"),
    ]
    assert [e["epoch"] for e in events(run, "eval") if e["stage"] == "val"] == [4]
    assert weight_hash(run) == weight_hash(plain)


def test_a_config_names_observers_of_plugins(
    make_config: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "items", dict(registry.items))
    heard: list[str] = []

    @register_observer("counts")
    class Counts(Observer):
        def on_epoch(self, row: dict[str, Any]) -> None:
            heard.append(f"counts{row['epoch']}")

    @register_observer("needs_more")
    class NeedsMore(Observer):
        def __init__(self, more: int):
            self.more = more

    config = make_config("ppo", "Bandit-v0", max_epochs=1, observers=["counts"])
    go(config, Ear("a", heard))
    assert heard == ["a1", "counts1"], "the config's own come last"
    with pytest.raises(ConfigError, match=r"observers: needs_more could not be built"):
        go(config.replace(observers=["needs_more"]))


def test_every_callback_of_an_observer_reaches_all_members() -> None:
    """`Observers` forwards each callback that `Observer` declares."""
    callbacks = [name for name in vars(Observer) if name.startswith("on_")]
    assert "on_alert" in callbacks
    for name in callbacks:
        assert name in vars(Observers), name
