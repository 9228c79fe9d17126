"""How far an experiment is, read from the folders of its runs. Used by the live table, `gsolve
experiments`, web pages and agents."""

from dataclasses import dataclass
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.experiment import Experiment, Member
from gymnasium_solver.runs.query import RunSummary, get_run
from gymnasium_solver.runs.run import Run, is_run

OVER = ("finished", "failed", "broken")


@dataclass(frozen=True)
class Row:
    """One run of an experiment, also before it exists."""

    member: Member
    run: RunSummary | None

    @property
    def status(self) -> str:
        return "waiting" if self.run is None else self.run.status

    @property
    def progress(self) -> float | None:
        """Share of the budget, in [0, 1]; a finished run is complete."""
        if self.run is None:
            return 0.0
        if self.status == "finished":
            return 1.0
        total = self.run.max_env_steps
        return min(1.0, self.run.env_steps / total) if total else None

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self.member),
            "status": self.status,
            "progress": self.progress,
            "env_steps": self.run.env_steps if self.run else 0,
            "wall_s": self.run.wall_s if self.run else 0.0,
            "best": self.run.best if self.run else None,
            "test": self.run.test if self.run else None,
            "solved": self.run.solved if self.run else None,
        }


class Progress:
    """Rows of an experiment; what is over is read once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._over: dict[str, RunSummary] = {}

    def rows(self) -> list[Row]:
        return [Row(member, self._summary(member)) for member in self.experiment.members]

    def _summary(self, member: Member) -> RunSummary | None:
        if member.run in self._over:
            return self._over[member.run]
        folder = self.experiment.folder(member)
        if not is_run(folder):
            return None
        try:
            found = get_run(Run(folder))
        except RunError:  # being written anew, or damaged: the run itself reports it
            return None
        if found.status in OVER:
            self._over[member.run] = found
        return found


def status_of(rows: list[Row]) -> str:
    """One word about an experiment: running, finished, failed or incomplete."""
    states = {row.status for row in rows}
    if "running" in states or "created" in states:
        return "running"
    if states == {"finished"}:
        return "finished"
    return "failed" if states <= {"finished", "failed", "broken"} else "incomplete"


def counts(rows: list[Row]) -> str:
    """Such as "3 of 10 finished, 2 running"."""
    n_finished = sum(row.status == "finished" for row in rows)
    text = f"{n_finished} of {len(rows)} finished"
    for word in ("running", "failed", "killed", "interrupted"):
        n = sum(row.status == word for row in rows)
        text += f", {n} {word}" if n else ""
    return text
