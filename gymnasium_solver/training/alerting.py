"""Alerts while training: every row is judged; what begins or ends goes to the observers and to
events.jsonl. Judging only reads rows, and never stops or changes training.

Rows of short epochs are judged a few at a time, which costs half as much: what they raise is the
same, at the same env steps, a few epochs later. No row waits beyond a checkpoint or the end.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.alerts.judge import Judge, settings_of
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Observer

MOST_ROWS, MOST_STEPS = 4, 1024  # judged together


def rows_together(config: Config) -> int:
    """How many rows are judged at a time: up to 4 epochs or 1024 env steps."""
    return max(1, min(MOST_ROWS, MOST_STEPS // (config.n_envs * config.n_steps)))


class Alerts:
    def __init__(self, run: Run, observer: Observer, rows_together: int = 1) -> None:
        """A resumed run has rows: they are judged again without raising anything, so that the state
        is that of a run without a break. Observers are told what is still active."""
        self.run, self.observer, self.rows_together = run, observer, rows_together
        self._waiting: list[Mapping[str, Any]] = []
        self.judge: Judge | None = Judge(settings_of(run))
        active: dict[str, Alert] = {}
        for row in read_jsonl(run.metrics_path):
            for alert in self._ask(Judge.see, row):
                active[alert.name] = alert
        for alert in active.values():
            if not alert.is_over:
                observer.on_alert(alert)

    def see(self, row: Mapping[str, Any]) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= self.rows_together:
            self.catch_up()

    def catch_up(self) -> None:
        """Judge the rows that wait. A checkpoint must not be ahead of the alerts: a resume does not
        raise those of rows before it."""
        rows, self._waiting = self._waiting, []
        for row in rows:
            self._tell(self._ask(Judge.see, row))

    def diverged(self, text: str, env_steps: int) -> None:
        self.catch_up()
        self._tell(self._ask(Judge.see_divergence, text, env_steps))

    def _ask(self, question: Callable[..., list[Alert]], *given: Any) -> list[Alert]:
        if self.judge is None:
            return []
        try:
            return question(self.judge, *given)
        except Exception as error:  # a rule that fails must not end training
            self.judge = None
            text = f"alerts are off, a rule failed: {type(error).__name__}: {error}"
            self.run.log_event("alerts_failed", text=text)
            self.observer.on_message("warning", text)
            return []

    def _tell(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            self.run.log_event("alert", **alert.to_dict())
            self.observer.on_alert(alert)
