"""Compares groups of runs: scores with intervals, and a verdict only where the seeds allow one.

    comparison = compare(group_runs(["a1b2", "c3d4"], root))
    comparison.verdicts[0].text      # "cannot tell: ..."

The unit of replication is the seed. A group is called better only with at least four seeds on each
side, intervals of the IQM that do not overlap, an interval of the probability of improvement that
excludes one half, and a permutation test that stays significant after Holm's correction for the
number of comparisons in the environment, which asks for more seeds where there are several.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import statistics as stats
from gymnasium_solver.experiments.groups import VAL, Group, differing_fields
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, LEVEL, Estimate
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

# Seeds for a two-sided test at 5 % with a power of 80 %, per squared effect size.
SEEDS_PER_EFFECT = 2 * (1.960 + 0.842) ** 2
MOST_SEEDS = 100  # more are not a practical answer
UPDATES = "train/cnt/total_updates"
MEASURES = (
    *("strength", "max_strength", "final_strength", "sample_efficiency", "training_efficiency"),
    *("stability", "consistency"),
)


@dataclass(frozen=True)
class GroupResult:
    label: str
    env_id: str
    runs: list[str]
    seeds: list[int | None]
    scores: list[float]
    n_untested: int
    """Runs judged by their best validation, which is too high, because they were not tested."""
    iqm: Estimate
    mean: Estimate
    median: float
    threshold: float | None
    n_solved: int
    solved_at: float | None
    """Median env steps until a validation reached the threshold; seeds that never do count as
    later."""
    wall_s: float  # median
    random: float | None
    """What random actions score; None if it was not measured."""
    measures: dict[str, float]
    """SLM-Lab's MEASURES; strength is the score above that of random actions."""


@dataclass(frozen=True)
class Verdict:
    first: str
    second: str
    env_id: str
    word: str
    """better, worse or cannot tell: the first against the second."""
    text: str
    improvement: Estimate
    seeds_needed: int | None
    """About how many seeds on each side would tell; None if the groups have no difference or
    if more than MOST_SEEDS were needed."""
    p: float
    """The p-value of the permutation test, corrected for the number of comparisons (Holm)."""


@dataclass(frozen=True)
class OverEnvironments:
    """Normalised scores (random 0, threshold or reference 1) over several environments."""

    env_ids: list[str]
    aggregates: dict[str, dict[str, Estimate]]
    """Mean, median, IQM and optimality gap by config."""
    ranks: dict[str, list[float]]
    """Rank in each environment by config."""
    thresholds: list[float]
    profiles: dict[str, list[list[float]]]
    """Share of runs above each threshold, with the ends of its interval: [share, low, high]."""


@dataclass(frozen=True)
class Comparison:
    groups: list[GroupResult]
    verdicts: list[Verdict]
    differences: dict[str, list[Any]]
    """Config fields that are not the same in all groups, with the value of each group."""
    machines: dict[str, list[str]]
    """The same for facts about the machines: cpu, versions."""
    aggregate: dict[str, Estimate] | None
    """IQM of normalised scores by config over all environments, if there are several."""
    ranks: dict[str, float] | None
    over_environments: "OverEnvironments | None" = None
    """More about configs that were run in the same environments."""

    def to_dict(self) -> dict[str, Any]:
        return _without_nan(asdict(self))


def compare(groups: Sequence[Group]) -> Comparison:
    for group in groups:
        if not group.scores:
            raise RunError(
                f"{group.label} has no score yet: {', '.join(m.summary.id for m in group.members)} "
                "was neither tested nor evaluated. Wait, or run `gsolve eval` on it."
            )
    results = [_result(group) for group in groups]
    configs = [group.config for group in groups]
    differences = {name: [c.get(name) for c in configs] for name in differing_fields(configs)}
    over = _over_environments(groups)
    aggregate = ranks = None
    if over is not None:
        aggregate = {name: found["iqm"] for name, found in over.aggregates.items()}
        if len(over.ranks) > 1:
            ranks = {name: float(np.mean(places)) for name, places in over.ranks.items()}
    verdicts, machines = verdicts_of(results), _machines(groups)
    return Comparison(results, verdicts, differences, machines, aggregate, ranks, over)


def _result(group: Group) -> GroupResult:
    scores = group.scores
    baseline = random_baseline(group.env_id, game_settings(group.config))
    solved_at = None
    if group.threshold is not None:
        solved_at = stats.median_time(
            stats.time_to_threshold(group.curve_set(VAL), group.threshold)
        )
    return GroupResult(
        label=group.label,
        env_id=group.env_id,
        runs=[member.summary.id for member in group.members],
        seeds=[member.summary.seed for member in group.members],
        scores=scores,
        n_untested=sum(not member.is_tested for member in group.members),
        iqm=stats.interval(scores),
        mean=stats.interval(scores, stats.mean),
        median=float(stats.median(np.asarray(scores)[:, None])),
        threshold=group.threshold,
        n_solved=group.n_solved,
        solved_at=solved_at,
        wall_s=float(np.median([member.summary.wall_s for member in group.members])),
        random=None if baseline is None else baseline.mean,
        measures=measures(group, 0.0 if baseline is None else baseline.mean),
    )


def measures(group: Group, random_score: float) -> dict[str, float]:
    """SLM-Lab's measures of a group: each is computed from the validations of a seed and averaged
    over seeds; consistency is a measure of the group. What cannot be computed is left out."""
    curves, every = [], []
    for member in group.members:
        curve, updates, newest = [], [], 0.0
        for row in get_rows(Run(Path(member.summary.path))):
            newest = row.get(UPDATES) or newest
            if row.get(VAL) is not None:
                curve.append((row["env_steps"], row[VAL]))
                updates.append(newest)
        found = stats.curve_measures(curve, random_score, updates if newest else None)
        if found is not None:
            curves.append(curve)
            every.append(found)
    result = {}
    for name in MEASURES:
        values = [seed[name] for seed in every if name in seed and np.isfinite(seed[name])]
        if values:
            result[name] = float(np.mean(values))
    if len(curves) > 1:
        spread = stats.consistency(stats.on_grid(curves)[1], random_score)
        if np.isfinite(spread):
            result["consistency"] = spread
    return result


def verdicts_of(results: Sequence[GroupResult]) -> list[Verdict]:
    """Each group against the first one of its environment; the comparisons of an environment are
    corrected for their number."""
    found: list[Verdict] = []
    for env_id in dict.fromkeys(result.env_id for result in results):
        first, *others = [result for result in results if result.env_id == env_id]
        p_values = stats.holm([stats.permutation_p(o.scores, first.scores) for o in others])
        for other, p in zip(others, p_values, strict=True):
            found.append(judge(other, first, p, len(others)))
    return found


def judge(ours: GroupResult, theirs: GroupResult, p: float, comparisons: int) -> Verdict:
    """Whether the first group is better than the second."""
    chance = stats.improvement_interval(ours.scores, theirs.scores)
    needed = seeds_needed(ours.scores, theirs.scores)
    word, text = "cannot tell", "cannot tell: "
    n, fewest = min(ours.iqm.n, theirs.iqm.n), stats.fewest_seeds(comparisons)
    among = f" for {comparisons} comparisons" * (comparisons > 1)
    if n < fewest:
        seeds = f"{n} seed{'s' * (n != 1)}"
        text += f"{seeds}, at least {fewest} on each side are needed{among}"
        needed = max(needed or 0, fewest)
    elif ours.iqm.overlaps(theirs.iqm) or chance.low <= 0.5 <= chance.high:
        text += "the intervals overlap"
        if needed is None:
            text += f"; more than {MOST_SEEDS} seeds would be needed"
        elif needed > n:
            text += f"; about {needed} seeds on each side would tell"
    elif p > 1 - LEVEL:
        text += f"p = {p:.2g}{among}"
    else:
        word = "better" if chance.value > 0.5 else "worse"
        won = chance if word == "better" else Estimate(
            1 - chance.value, 1 - chance.high, 1 - chance.low, chance.n
        )  # fmt: skip
        text = f"{word} with probability {won.value:.2f} [{won.low:.2f}, {won.high:.2f}]"
    return Verdict(ours.label, theirs.label, ours.env_id, word, text, chance, needed, p)


def seeds_needed(ours: Sequence[float], theirs: Sequence[float]) -> int | None:
    """Seeds on each side to see a difference as large as the one seen, by a normal approximation.
    None if there is no difference, or if it is too small for MOST_SEEDS."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    gap = abs(a.mean() - b.mean())
    spreads = [x.var(ddof=1) for x in (a, b) if len(x) > 1]
    if gap == 0 or not spreads:
        return None
    needed = max(FEWEST_SEEDS, math.ceil(SEEDS_PER_EFFECT * float(np.mean(spreads)) / gap**2))
    return needed if needed <= MOST_SEEDS else None


def _machines(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Facts about the machines that are not the same for all groups."""
    facts: list[dict[str, str]] = []
    for group in groups:
        seen: dict[str, dict[str, None]] = {}
        for member in group.members:
            machine = member.meta.get("machine") or {}
            row = {"cpu": machine.get("cpu"), "cpu_count": machine.get("cpu_count")}
            for name, value in (row | (member.meta.get("versions") or {})).items():
                seen.setdefault(name, {})[str(value)] = None
        facts.append({name: ", ".join(values) for name, values in seen.items()})
    names = dict.fromkeys(name for row in facts for name in row)
    table = {name: [row.get(name, "-") for row in facts] for name in names}
    return {name: row for name, row in table.items() if len(set(row)) > 1}


def _over_environments(groups: Sequence[Group]) -> OverEnvironments | None:
    """Normalised scores of configs that were run in the same environments, two or more."""
    envs = list(dict.fromkeys(group.env_id for group in groups))
    by_config: dict[str, dict[str, list[float]]] = {}
    for group in groups:
        scores = [s for member in group.members if (s := member.normalized()) is not None]
        if scores:
            name = group.label.partition(":")[2] or group.label
            by_config.setdefault(name, {})[group.env_id] = scores
    complete = {name: rows for name, rows in by_config.items() if list(rows) == envs}
    if len(envs) < 2 or not complete:
        return None
    tables = {name: _table([rows[env] for env in envs]) for name, rows in complete.items()}
    high = max(1.0, *(float(np.nanmax(table)) for table in tables.values()))
    levels = np.linspace(0.0, high, 51)
    profiles = {
        name: [[float(v) for v in line] for line in stats.profile_band(table, levels)]
        for name, table in tables.items()
    }
    return OverEnvironments(
        envs,
        {name: stats.aggregates(table) for name, table in tables.items()},
        stats.rank_table(tables),
        [float(level) for level in levels],
        profiles,
    )


def _table(columns: Sequence[Sequence[float]]) -> np.ndarray:
    table = np.full((max(map(len, columns)), len(columns)), np.nan)
    for i, column in enumerate(columns):
        table[: len(column), i] = column
    return table


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
