"""SLM-Lab's measures of a group of seeds: strength, efficiency, stability, consistency.

Strength is the score above that of random actions. Each measure is computed from the validations of
a seed and averaged over seeds; consistency is a measure of the group.
"""

from pathlib import Path

import numpy as np

from gymnasium_solver.envs.baselines import Baseline, game_settings, random_baseline
from gymnasium_solver.experiments.groups import VAL, Group, Member
from gymnasium_solver.experiments.statistics import consistency, curve_measures, on_grid
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

UPDATES = "train/cnt/total_updates"
NAMES = (
    *("strength", "max_strength", "final_strength", "sample_efficiency", "training_efficiency"),
    *("stability", "consistency"),
)


def baseline_of(group: Group) -> Baseline | None:
    """What random actions score in the environment of a group."""
    return random_baseline(group.env_id, game_settings(group.config))


def measures(group: Group) -> dict[str, float]:
    """The measures of a group; those that cannot be computed are left out."""
    baseline = baseline_of(group)
    random_score = baseline.mean if baseline is not None else 0.0
    curves, every = [], []
    for member in group.members:
        curve, updates = _curve(member)
        found = curve_measures(curve, random_score, updates)
        if found is not None:
            curves.append(curve)
            every.append(found)
    if not every:
        return {}
    result = {}
    for name in NAMES:
        values = [seed[name] for seed in every if name in seed and np.isfinite(seed[name])]
        if values:
            result[name] = float(np.mean(values))
    if len(curves) > 1:
        _, values_on_grid = on_grid(curves)
        spread = consistency(values_on_grid, random_score)
        if np.isfinite(spread):
            result["consistency"] = spread
    return result


def _curve(member: Member) -> tuple[list[tuple[float, float | None]], list[float] | None]:
    """The validations of a run, and the number of updates at each; None if it was not logged."""
    curve: list[tuple[float, float | None]] = []
    updates: list[float] = []
    newest = 0.0
    for row in get_rows(Run(Path(member.summary.path))):
        newest = row.get(UPDATES) or newest
        if row.get(VAL) is not None:
            curve.append((row["env_steps"], row[VAL]))
            updates.append(newest)
    return curve, updates if newest else None
