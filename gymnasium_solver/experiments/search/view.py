"""The read API of sweeps, for the command line, Python, web pages and agents.

found = view("@last")
found.status, found.winner, found.rows(), found.importances()
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.search.folder import Sweep, find_sweep, sweep_ids, sweeps_root
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranking import front, importances, ranked
from gymnasium_solver.runs.run import runs_root


@dataclass(frozen=True)
class View:
    """A sweep as it is now."""

    sweep: Sweep
    plan: Plan
    trials: list[Trial]
    result: dict[str, Any] | None

    @cached_property
    def status(self) -> str:
        """running, finished, or stopped: gsolve sweep --resume continues it."""
        if self.sweep.is_running:
            return "running"
        is_over = sum(trial.is_over for trial in self.trials) >= (self.plan.trials or 0)
        return "finished" if self.result and is_over else "stopped"

    @property
    def winner(self) -> int:
        """The trial to use: that of the final, or the best so far."""
        if self.result and self.result.get("winner") is not None:
            return int(self.result["winner"])
        best = ranked(self.plan, self.trials)
        if not best:
            raise RunError(f"{self.sweep.id} has no trial with a value yet")
        return best[0].number

    def rows(self) -> list[dict[str, Any]]:
        """The trials, best first, then those without a value."""
        best = ranked(self.plan, self.trials)
        rest = [trial for trial in self.trials if trial not in best]
        on_front = {t.number for t in front(self.plan, self.trials)} if self.plan.cost else set()
        recorded = ("scores", "solved", "env_steps", "cost", "reason")
        return [
            {
                "number": trial.number,
                "state": trial.state,
                "value": trial.value,
                "own": bool(trial.attrs.get("own")),
                "on_front": trial.number in on_front,
                "params": self.plan.space().decode(trial.latents),
                **{name: trial.attrs.get(name) for name in recorded},
                "path": str(self.sweep.trial_dir(trial.number)),
            }
            for trial in (*best, *rest)
        ]

    def importances(self) -> dict[str, float]:
        return importances(self.plan, self.trials)

    def summary(self) -> dict[str, Any]:
        best = ranked(self.plan, self.trials)
        return {
            "id": self.sweep.id,
            "path": str(self.sweep.path),
            "config": self.plan.config,
            "status": self.status,
            "done": sum(trial.is_over for trial in self.trials),
            "trials": self.plan.trials,
            "sampler": self.plan.sampler,
            "metric": self.plan.metric.name,
            "goal": self.plan.metric.goal,
            "best": best[0].value if best else None,
        }

    def to_dict(self) -> dict[str, Any]:
        return self.summary() | {
            "params": dict(self.plan.params),
            "importances": self.importances(),
            "rows": self.rows(),
            "result": self.result,
        }


def view(ref: str = "@last", runs_dir: str | Path | None = None) -> View:
    """A sweep by @last, an id, a part of one, or a path."""
    return _view(find_sweep(ref, runs_root(runs_dir)))


def views(runs_dir: str | Path | None = None) -> Sequence[View]:
    """All sweeps, newest first."""
    runs = runs_root(runs_dir)
    return [_view(Sweep(sweeps_root(runs) / name)) for name in sweep_ids(runs)]


def _view(sweep: Sweep) -> View:
    return View(sweep, sweep.plan(), sweep.trials(), sweep.read("result.json"))
