"""Calls several observers in order; a failing observer does not stop training.

An observer that raises is reported to the others and in events.jsonl, with its name and the error.
After `MOST_FAILURES` failures it is no longer called in this run.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.plugins import observer_class
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import EvalResult, Observer, TrainInfo
from gymnasium_solver.training.videos import VideoRecorder

MOST_FAILURES = 3


def configured_observers(config: Config) -> list[Observer]:
    """Build the observers named in `config.observers`, and the recorder of videos."""
    built: list[Observer] = []
    for name in config.observers:
        try:
            built.append(observer_class(name)())
        except Exception as error:
            raise ConfigError(
                f"observers: {name} could not be built, {type(error).__name__}: {error}. The "
                "class of an observer is called without arguments."
            ) from error
    return [*built, VideoRecorder(config.video)]


class Observers(Observer):
    def __init__(self, members: Sequence[Observer] = ()) -> None:
        self.members = list(members)
        self._failures: dict[int, int] = {}
        self._run: Run | None = None

    def _call(self, method: str, *args: Any) -> None:
        for member in list(self.members):
            try:
                getattr(member, method)(*args)
            except Exception as error:  # a failing observer must not end training
                self._failed(member, method, error)

    def _failed(self, member: Observer, method: str, error: Exception) -> None:
        count = self._failures[id(member)] = self._failures.get(id(member), 0) + 1
        name = type(member).__name__
        if count == MOST_FAILURES:
            self.members.remove(member)
            self._report(f"observer {name} failed {count} times and is no longer called")
        elif count == 1:
            text = f"observer {name} failed in {method}, {type(error).__name__}: {error}"
            self._report(text, besides=member)

    def _report(self, text: str, besides: Observer | None = None) -> None:
        if self._run is not None:
            with suppress(WriteError):  # the metrics report it if the folder cannot be written
                self._run.log_event("observer_failed", text=text)
        for member in list(self.members):
            if member is not besides:
                try:
                    member.on_message("warning", text)
                except Exception as error:
                    self._failed(member, "on_message", error)

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self._run = run
        self._call("on_start", run, config, info)

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._call("on_epoch", row)

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        self._call("on_eval", result, is_best)

    def on_test(self, result: EvalResult, required: float) -> None:
        self._call("on_test", result, required)

    def on_checkpoint(self, path: Path, kind: str) -> None:
        self._call("on_checkpoint", path, kind)

    def on_alert(self, alert: Alert) -> None:
        self._call("on_alert", alert)

    def on_message(self, level: str, text: str) -> None:
        self._call("on_message", level, text)

    def on_profile(self, table: list[str], trace: Path) -> None:
        self._call("on_profile", table, trace)

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        self._call("on_end", summary, final)
