"""The final of a sweep: one of the best trials, and the config's own values, on fresh seeds.

The best score of many noisy trials is too good. The best few are therefore trained again on seeds
that no trial had, which choose one of them. That one and the config's own values are then trained
on further seeds that had no part in any choice: only these scores are quoted and judged.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.experiments.search import rules
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.models import ranked
from gymnasium_solver.experiments.search.objective import Measured, measure
from gymnasium_solver.experiments.search.pareto import front
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    interval,
    mean,
    permutation_p,
)
from gymnasium_solver.training.seeds import derive


def candidates(plan: Plan, trials: Sequence[Trial]) -> list[int]:
    """Numbers of the trials that take part in the final, best first."""
    shrunk = rules.shrunken(plan, trials)
    sign = -1.0 if plan.metric.goal == "maximize" else 1.0
    order = [t.number for t in ranked(plan, trials) if not t.attrs.get("own")]
    order.sort(key=lambda number: sign * shrunk[number])  # stable: equal ones keep their order
    if plan.cost is not None:  # the front, and with room left the best others
        best = [trial.number for trial in front(plan, trials)]
        order = [*(n for n in order if n in best), *(n for n in order if n not in best)]
    return order[: plan.final.top or 0]


def own_of(trials: Sequence[Trial]) -> list[int]:
    """The trial with the config's own values, if it has a score."""
    return [t.number for t in trials if t.attrs.get("own") and t.state == COMPLETE]


def choice_seeds(plan: Plan, finalists: Sequence[int]) -> list[int]:
    """The seeds by which one of several finalists is chosen."""
    n = (plan.final.choose or 2) if len(finalists) > 1 else 0
    return [derive(plan.seed, "choice", i) for i in range(n)]


def final_seeds(plan: Plan) -> list[int]:
    """The seeds by which the chosen trial and the config's own values are judged."""
    return [derive(plan.seed, "final", i) for i in range(plan.final.seeds or 0)]


def n_trainings(plan: Plan) -> int:
    """How many trainings a final has, if the config's own values have a score."""
    top = plan.final.top or 0
    n = len(choice_seeds(plan, range(top))) * top
    return n + 2 * (plan.final.seeds or 0) if top else 0


def measured_rows(
    plan: Plan, trials: Sequence[Trial], folders: dict[int, list[Path]], budget: int
) -> list[dict[str, Any]]:
    """What the runs of each trial came to, the best first; trials without a value are left out."""
    rows = [_row(plan, trials[number], own, budget) for number, own in folders.items()]
    sign = -1.0 if plan.metric.goal == "maximize" else 1.0
    valued = [row for row in rows if row["values"]]
    return sorted(valued, key=lambda row: (sign * row["value"], row["env_steps"]))


def chosen_of(
    sweep: Sweep, plan: Plan, trials: Sequence[Trial], finalists: Sequence[int], budget: int
) -> tuple[list[int], list[dict[str, Any]]]:
    """The finalist that is judged, as a list with at most one, and what it was chosen by."""
    n = len(choice_seeds(plan, finalists))
    if not n:
        return list(finalists), []
    folders = {number: [sweep.choice_dir(number, i) for i in range(n)] for number in finalists}
    rows = measured_rows(plan, trials, folders, budget)
    return [row["trial"] for row in rows[:1]], rows


def result(sweep: Sweep, plan: Plan, trials: Sequence[Trial], budget: int) -> dict[str, Any]:
    """What the sweep came to: the winner and, if there was a final, the scores to quote."""
    finalists = candidates(plan, trials)
    chosen, choice = chosen_of(sweep, plan, trials, finalists, budget)
    seeds = final_seeds(plan) if chosen else []
    judged = [*chosen, *own_of(trials)] if seeds else []
    folders = {number: [sweep.final_dir(number, i) for i in range(len(seeds))] for number in judged}
    rows = measured_rows(plan, trials, folders, budget)
    best = ranked(plan, trials)
    winner = rows[0]["trial"] if rows else (best[0].number if best else None)
    names = ("trial", "value", "values", "failed")
    return {
        "metric": plan.metric.name,
        "goal": plan.metric.goal,
        "trials": len(trials),
        "states": {s: sum(t.state == s for t in trials) for s in ("complete", "pruned", "failed")},
        "winner": winner,
        "params": {} if winner is None else plan.space().decode(trials[winner].latents),
        "is_own": winner is not None and bool(trials[winner].attrs.get("own")),
        "final": rows,
        "seeds": seeds,
        "choice": [{name: row[name] for name in names} for row in choice],
        "choice_seeds": choice_seeds(plan, finalists),
        "verdict": _verdict(rows, choice),
        "env_steps": sum(int(t.attrs.get("env_steps") or 0) for t in trials),
    }


def _verdict(rows: Sequence[dict[str, Any]], choice: Sequence[dict[str, Any]]) -> str | None:
    """Whether the winner is shown to be better than the config's own values."""
    own = next((row for row in rows if row["own"]), None)
    if own is None:
        return None
    if rows[0] is own:
        return "no trial is better than the config's own values"
    ours, theirs = rows[0]["values"], own["values"]
    if min(len(ours), len(theirs)) < FEWEST_SEEDS:
        return f"too few seeds to tell it from the config's own values: {FEWEST_SEEDS} are needed"
    how = f"{min(len(ours), len(theirs))} seeds"
    if choice:
        how += f" other than the {len(choice[0]['values'])} that chose it"
    if interval(ours, mean).overlaps(interval(theirs, mean)):
        return f"not shown to be better than the config's own values: intervals overlap on {how}"
    if permutation_p(ours, theirs) > 1 - LEVEL:
        return f"not shown to be better than the config's own values by {how}"
    return f"better than the config's own values on {how}: the intervals do not overlap"


def _row(plan: Plan, trial: Trial, folders: Sequence[Path], budget: int) -> dict[str, Any]:
    measured: list[Measured] = []
    failed = 0
    for folder in folders:
        try:
            measured.append(measure(folder, plan.metric, budget))
        except GsolveError:
            failed += 1
    values = [one.value for one in measured]
    scores = [one.score for one in measured if one.score is not None]
    row: dict[str, Any] = {
        "trial": trial.number,
        "own": bool(trial.attrs.get("own")),
        "in_search": trial.value,
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
