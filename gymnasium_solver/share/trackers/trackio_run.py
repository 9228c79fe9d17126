"""Trackio: metrics over env steps, in its local dashboard."""

import importlib
from collections.abc import Mapping
from typing import Any

from gymnasium_solver.runs.curves import event_rows
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.share.trackers.sink import Sent, Sink, Subject, TrackError, numbers
from gymnasium_solver.share.trackers.wandb_run import group_of, project_of


class TrackioSink(Sink):
    """Trackio keeps what it was given: rows are sent once, from the saved count on. After a rewind
    the run is written again under another name."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        try:
            trackio = importlib.import_module("trackio")
        except ImportError:
            raise TrackError(
                "Trackio is not installed. It needs another Pillow than this package is tested "
                "with: pip install trackio in an environment of its own, and gsolve track there."
            ) from None
        self._trackio, self._subject = trackio, subject
        self._part = int(state.get("part", 0))
        self._init()
        return sent

    def _init(self) -> None:
        run, config = self._subject.run, self._subject.config
        name = f"{run.id}-{self._part}" if self._part else run.id
        self._run = self._trackio.init(
            project=self._subject.options.project or project_of(config),
            name=name,
            group=group_of(run, config),
            config=dict(config),
            resume="allow",
        )

    def rewind(self, kept: Sent) -> Sent:
        self._trackio.finish()
        self._part += 1
        self._init()
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        self._trackio.log(numbers(row) | {"env_steps": row["env_steps"]}, step=row["env_steps"])

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        for row in event_rows([event], self._subject.run.meta()):
            self._trackio.log(numbers(row), step=row["env_steps"])

    def commit(self) -> dict[str, Any]:
        return {"part": self._part}

    def close(self, summary: RunSummary) -> str:
        self._trackio.finish()
        return "trackio show"
