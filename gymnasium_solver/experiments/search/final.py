"""The final of a sweep: one of the best trials, and the config's own values, on fresh seeds.

The best score of many noisy trials is too good. The best few are therefore trained again on seeds
that no trial had, which choose one of them. That one and the config's own values are then trained
on further seeds that had no part in any choice: only these scores are quoted and judged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.objective import Measured, measure
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranking import front, ranked, shrunken
from gymnasium_solver.experiments.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    interval,
    mean,
    permutation_p,
)
from gymnasium_solver.training.seeds import derive

Row = dict[str, Any]


def n_trainings(plan: Plan) -> int:
    """How many trainings a final has, if the config's own values have a score."""
    top, seeds = plan.final.top or 0, plan.final.seeds or 0
    return top * (plan.final.choose or 0) * (top > 1) + 2 * seeds if top else 0


@dataclass
class Final:
    """The final after all trials are over."""

    sweep: Sweep
    plan: Plan
    trials: Sequence[Trial]
    budget: int

    def __post_init__(self) -> None:
        plan = self.plan
        shrunk = shrunken(self.trials)
        order = [t.number for t in ranked(plan, self.trials) if not t.attrs.get("own")]
        order.sort(key=lambda number: -plan.sign * shrunk[number])  # stable: ties keep their order
        if plan.cost is not None:  # the front, and with room left the best others
            best = [trial.number for trial in front(plan, self.trials)]
            order.sort(key=lambda number: number not in best)
        self.finalists = order[: plan.final.top or 0]
        """Numbers of the trials that take part, best first."""
        own = [t for t in self.trials if t.attrs.get("own") and t.state == COMPLETE]
        self.own = [trial.number for trial in own if self.finalists]
        """The trial with the config's own values, if it has a score."""
        n = (plan.final.choose or 2) if len(self.finalists) > 1 else 0
        self.choice_seeds = [derive(plan.seed, "choice", i) for i in range(n)]
        n = (plan.final.seeds or 0) if self.finalists else 0
        self.seeds = [derive(plan.seed, "final", i) for i in range(n)]

    def listed(self) -> dict[str, Any]:
        """The content of final.json."""
        return {"trials": [*self.finalists, *self.own], "choice_seeds": self.choice_seeds,
                "seeds": self.seeds}  # fmt: skip

    def chosen(self) -> list[int]:
        """The finalist that is judged, if one has a value on the seeds that choose."""
        if not self.choice_seeds:
            return self.finalists
        return [row["trial"] for row in self._choice()[:1]]

    def result(self) -> dict[str, Any]:
        """What the sweep came to: the winner and, if there was a final, the scores to quote."""
        plan, trials, choice = self.plan, self.trials, self._choice()
        rows = self._rows([*self.chosen(), *self.own], self.sweep.final_dir, len(self.seeds))
        best = ranked(plan, trials)
        winner = rows[0]["trial"] if rows else (best[0].number if best else None)
        names = ("trial", "value", "values", "failed")
        states = ("complete", "pruned", "failed")
        return {
            "metric": plan.metric.name,
            "goal": plan.metric.goal,
            "trials": len(trials),
            "states": {state: sum(t.state == state for t in trials) for state in states},
            "winner": winner,
            "params": {} if winner is None else plan.space().decode(trials[winner].latents),
            "is_own": winner is not None and bool(trials[winner].attrs.get("own")),
            "final": rows,
            "seeds": self.seeds,
            "choice": [{name: row[name] for name in names} for row in choice],
            "choice_seeds": self.choice_seeds,
            "verdict": _verdict(rows, len(self.choice_seeds)),
            "env_steps": sum(int(t.attrs.get("env_steps") or 0) for t in trials),
        }

    def _choice(self) -> list[Row]:
        return self._rows(self.finalists, self.sweep.choice_dir, len(self.choice_seeds))

    def _rows(
        self, numbers: list[int], folder: Callable[[int, int], Path], seeds: int
    ) -> list[Row]:
        """What the runs of each trial came to, best first; trials without a value are left out."""
        rows = [self._row(n, [folder(n, i) for i in range(seeds)]) for n in numbers]
        known = [row for row in rows if row["values"]]
        return sorted(known, key=lambda row: (-self.plan.sign * row["value"], row["env_steps"]))

    def _row(self, number: int, folders: Sequence[Path]) -> Row:
        measured: list[Measured] = []
        failed = 0
        for folder in folders:
            try:
                measured.append(measure(folder, self.plan.metric, self.budget))
            except GsolveError:
                failed += 1
        values = [one.value for one in measured]
        scores = [one.score for one in measured if one.score is not None]
        row = {
            "trial": number,
            "own": bool(self.trials[number].attrs.get("own")),
            "in_search": self.trials[number].value,
            "value": fmean(values) if values else None,
            "values": values,
            "score": fmean(scores) if scores else None,
            "scores": scores,
            "solved": sum(bool(one.solved) for one in measured),
            "seeds": len(folders),
            "failed": failed,
            "env_steps": fmean(one.env_steps for one in measured) if measured else 0.0,
        }
        if len(scores) >= FEWEST_SEEDS:
            found = interval(scores, mean)
            row["interval"] = [found.low, found.high]
        return row


def _verdict(rows: Sequence[Row], n_choice: int) -> str | None:
    """Whether the winner is shown to be better than the config's own values."""
    own = next((row for row in rows if row["own"]), None)
    if own is None:
        return None
    if rows[0] is own:
        return "no trial is better than the config's own values"
    ours, theirs = rows[0]["values"], own["values"]
    n = min(len(ours), len(theirs))
    if n < FEWEST_SEEDS:
        return f"too few seeds to tell it from the config's own values: {FEWEST_SEEDS} are needed"
    how = f"{n} seeds" + f" other than the {n_choice} that chose it" * bool(n_choice)
    if interval(ours, mean).overlaps(interval(theirs, mean)):
        return f"not shown to be better than the config's own values: intervals overlap on {how}"
    if permutation_p(ours, theirs) > 1 - LEVEL:
        return f"not shown to be better than the config's own values by {how}"
    return f"better than the config's own values on {how}: the intervals do not overlap"
