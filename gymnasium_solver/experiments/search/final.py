"""The final of a sweep: the best trials, and the config's own values, on fresh seeds.

The best score of many noisy trials is too good. The best few are therefore trained again, all on
the same seeds that no trial had, and only these scores are quoted.
"""

from collections.abc import Sequence
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
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, interval, mean


def candidates(plan: Plan, trials: Sequence[Trial]) -> list[int]:
    """Numbers of the trials in the final, best first, then the config's own values."""
    top = plan.final.top or 0
    if top == 0:
        return []
    shrunk = rules.shrunken(plan, trials)
    sign = -1.0 if plan.metric.goal == "maximize" else 1.0
    order = [trial.number for trial in ranked(plan, trials)]
    order.sort(key=lambda number: sign * shrunk[number])  # stable: equal ones keep their order
    if plan.cost is not None:  # the front, and with room left the best others
        best = [trial.number for trial in front(plan, trials)]
        order = [*(n for n in order if n in best), *(n for n in order if n not in best)]
    own = [trial.number for trial in trials if trial.attrs.get("own") and trial.state == COMPLETE]
    return [*[number for number in order if number not in own][:top], *own]


def result(sweep: Sweep, plan: Plan, trials: Sequence[Trial], budget: int) -> dict[str, Any]:
    """What the sweep came to: the winner and, if there was a final, the scores to quote."""
    listed = sweep.read("final.json") or {}
    rows = [
        _row(sweep, plan, trials[number], len(listed.get("seeds", [])), budget)
        for number in listed.get("trials", [])
    ]
    rows = [row for row in rows if row["values"]]
    sign = -1.0 if plan.metric.goal == "maximize" else 1.0
    rows.sort(key=lambda row: (sign * row["value"], row["env_steps"]))
    best = ranked(plan, trials)
    winner = rows[0]["trial"] if rows else (best[0].number if best else None)
    space = plan.space()
    return {
        "metric": plan.metric.name,
        "goal": plan.metric.goal,
        "trials": len(trials),
        "states": {s: sum(t.state == s for t in trials) for s in ("complete", "pruned", "failed")},
        "winner": winner,
        "params": {} if winner is None else space.decode(trials[winner].latents),
        "is_own": winner is not None and bool(trials[winner].attrs.get("own")),
        "final": rows,
        "seeds": listed.get("seeds", []),
        "verdict": _verdict(rows),
        "env_steps": sum(int(t.attrs.get("env_steps") or 0) for t in trials),
    }


def _verdict(rows: Sequence[dict[str, Any]]) -> str | None:
    """Whether the winner is shown to be better than the config's own values."""
    own = next((row for row in rows if row["own"]), None)
    if own is None:
        return None
    if rows[0] is own:
        return "no trial is better than the config's own values"
    best = rows[0]
    if len(best["values"]) < FEWEST_SEEDS or len(own["values"]) < FEWEST_SEEDS:
        return f"too few seeds to tell it from the config's own values: {FEWEST_SEEDS} are needed"
    if interval(best["values"], mean).overlaps(interval(own["values"], mean)):
        return (
            f"{len(own['values'])} seeds do not show that it is better than the config's own "
            "values: the intervals overlap"
        )
    return "better than the config's own values: the intervals do not overlap"


def _row(sweep: Sweep, plan: Plan, trial: Trial, seeds: int, budget: int) -> dict[str, Any]:
    measured: list[Measured] = []
    failed = 0
    for index in range(seeds):
        try:
            measured.append(measure(sweep.final_dir(trial.number, index), plan.metric, budget))
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
        "seeds": seeds,
        "failed": failed,
        "env_steps": fmean(one.env_steps for one in measured) if measured else 0.0,
    }
    if len(scores) >= FEWEST_SEEDS:
        found = interval(scores, mean)
        row["interval"] = [found.low, found.high]
    return row
