"""Score against cost: the trials that no other beats in both."""

from collections.abc import Sequence

from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.plan import Plan


def front(plan: Plan, trials: Sequence[Trial]) -> list[Trial]:
    """Trials on the Pareto front, cheapest first."""
    sign = 1.0 if plan.metric.goal == "maximize" else -1.0
    over = [t for t in trials if t.state == COMPLETE and t.value is not None]
    found: list[Trial] = []
    for trial in sorted(over, key=lambda t: (t.cost, -sign * (t.value or 0.0), t.number)):
        if not found or sign * (trial.value or 0.0) > sign * (found[-1].value or 0.0):
            found.append(trial)
    return found
