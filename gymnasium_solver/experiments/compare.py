"""Compares groups of runs: scores with intervals, and a verdict only where the seeds allow one.

The unit of replication is the seed. A group is called better if Welch's t-test of the mean scores
says so after Holm's correction for all comparisons of the table, if the difference is at least the
smallest one that matters (`margin`), and if the IQM agrees. Groups are equal if the interval of
their difference lies within the margin. docs/statistics.md has the error rates by simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments import statistics as stats
from gymnasium_solver.experiments.groups import VAL, Group, differing_fields
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, LEVEL, Estimate
from gymnasium_solver.runs.files import jsonable
from gymnasium_solver.runs.query import get_columns
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText

MARGIN = "1%"  # the smallest difference that matters, as a share of the range of scores
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
    median: Estimate
    threshold: float | None
    n_solved: int
    solved_at: float | None
    """Median env steps until a validation reached the threshold; seeds that never do count as
    later."""
    wall_s: float  # median
    random: float | None  # what random actions score, if it was measured
    measures: dict[str, float]
    """SLM-Lab's MEASURES; strength is the score above that of random actions."""
    score_range: float | None = None
    """From the score of random actions to the threshold or reference; None if not known."""
    repeats: list[str] = field(default_factory=list)
    """Further runs of the same seeds, which do not count."""


@dataclass(frozen=True)
class Verdict:
    first: str
    second: str
    env_id: str
    word: str  # better, worse, equal or cannot tell: the first against the second
    text: str
    difference: Estimate  # of the mean scores
    p: float  # of Welch's t-test, corrected for the number of comparisons (Holm)
    margin: float  # the smallest difference that matters
    improvement: float  # share of the pairs of seeds in which the first has the higher score
    seeds_needed: int | None
    """About how many seeds on each side would tell; None if the groups have no difference or if
    too many were needed."""


@dataclass(frozen=True)
class OverEnvironments:
    """Normalised scores (random 0, threshold or reference 1) over several environments."""

    env_ids: list[str]
    aggregates: dict[str, dict[str, Estimate]]  # mean, median, IQM and optimality gap by config
    ranks: dict[str, list[float]]  # rank in each environment by config
    thresholds: list[float]
    profiles: dict[str, list[list[float]]]
    """Share of runs above each threshold, with the ends of its interval: [share, low, high]."""


@dataclass(frozen=True)
class Comparison:
    groups: list[GroupResult]
    verdicts: list[Verdict]
    differences: dict[str, list[Any]]
    """Config fields that are not the same in all groups, with the value of each group."""
    machines: dict[str, list[str]]  # the same for facts about the machines: cpu, versions
    aggregate: dict[str, Estimate] | None
    """IQM of normalised scores by config over all environments, if there are several."""
    ranks: dict[str, float] | None
    over_environments: "OverEnvironments | None" = None
    """More about configs that were run in the same environments."""

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(asdict(self)))


def compare(groups: Sequence[Group], margin: str = MARGIN) -> Comparison:
    """Compare groups of seeds. `margin`: the smallest difference that matters, as a score ("5") or
    as a share of the range of scores ("1%")."""
    read_margin(margin)
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
    verdicts, machines = verdicts_of(results, margin), _machines(groups)
    return Comparison(results, verdicts, differences, machines, aggregate, ranks, over)


def _result(group: Group) -> GroupResult:
    scores = group.scores
    baseline = random_baseline(group.env_id, game_settings(group.config))
    goal, solved_at = group.threshold, None
    if goal is not None:
        solved_at = stats.median_time(stats.time_to_threshold(group.curve_set(VAL), goal))
    elif baseline is not None:
        goal = baseline.target
    return GroupResult(
        label=group.label,
        env_id=group.env_id,
        runs=[member.summary.id for member in group.members],
        seeds=[member.summary.seed for member in group.members],
        scores=scores,
        n_untested=sum(not member.is_tested for member in group.members),
        iqm=stats.interval(scores),
        mean=stats.interval(scores, stats.mean),
        median=stats.interval(scores, stats.median),
        threshold=group.threshold,
        n_solved=group.n_solved,
        solved_at=solved_at,
        wall_s=float(np.median([member.summary.wall_s for member in group.members])),
        random=None if baseline is None else baseline.mean,
        measures=measures(group, 0.0 if baseline is None else baseline.mean),
        score_range=None if baseline is None or goal is None else abs(goal - baseline.mean) or None,
        repeats=list(group.repeats),
    )


def measures(group: Group, random_score: float) -> dict[str, float]:
    """SLM-Lab's measures of a group: each is computed from the validations of a seed and averaged
    over seeds; consistency is a measure of the group. What cannot be computed is left out."""
    curves, every = [], []
    for member in group.members:
        curve, updates, newest = [], [], 0.0
        for row in get_columns(Run(Path(member.summary.path)), (VAL, UPDATES)):
            newest = row.get(UPDATES) or newest
            if row.get(VAL) is not None:
                curve.append((row["env_steps"], row[VAL]))
                updates.append(newest)
        found = stats.curve_measures(curve, random_score, updates if newest else None)
        if found is not None:
            curves.append(curve)
            every.append(found)
    if len(curves) > 1:
        every.append({"consistency": stats.consistency(stats.on_grid(curves)[1], random_score)})
    known = {name: [seed[name] for seed in every if np.isfinite(seed.get(name, np.nan))]
             for name in MEASURES}  # fmt: skip
    return {name: float(np.mean(values)) for name, values in known.items() if values}


def verdicts_of(results: Sequence[GroupResult], margin: str = MARGIN) -> list[Verdict]:
    """Each group against the first one of its environment, corrected for the number of all of these
    comparisons."""
    pairs = []
    for env_id in dict.fromkeys(result.env_id for result in results):
        first, *others = [result for result in results if result.env_id == env_id]
        pairs += [(other, first) for other in others]
    p_values = [
        float(stats.welch(*both)) if min(map(len, both)) >= FEWEST_SEEDS else 1.0
        for both in ((ours.scores, theirs.scores) for ours, theirs in pairs)
    ]
    return [
        judge(ours, theirs, p, len(pairs), margin)
        for (ours, theirs), p in zip(pairs, stats.holm(p_values), strict=True)
    ]


def judge(
    ours: GroupResult, theirs: GroupResult, p: float, comparisons: int, margin: str = MARGIN
) -> Verdict:
    """Whether the first group is better than the second."""
    found = stats.difference(ours.scores, theirs.scores)
    least = smallest_difference(ours, theirs, margin)
    needed = stats.seeds_needed(ours.scores, theirs.scores, comparisons)
    won = stats.probability_of_improvement(ours.scores, theirs.scores)
    score = ScoreText(ours.threshold, [*ours.scores, *theirs.scores])
    gap = abs(found.value)
    ends = sorted((abs(found.low), abs(found.high))) if found.low * found.high > 0 else (0, 0)
    is_clear = p <= 1 - LEVEL
    shown = f"{score(found.value)} [{score(found.low)}, {score(found.high)}]"
    word, n, fewest = "cannot tell", found.n, stats.fewest_seeds(comparisons)
    if n >= FEWEST_SEEDS and max(-found.low, found.high) < least:
        word = "equal"
        text = f"no difference that matters: {shown} is less than {score(least)}"
    elif n < fewest:
        among = f" for {comparisons} comparisons" * (comparisons > 1)
        seeds = f"{n} seed{'s' * (n != 1)}"
        text = f"cannot tell: {seeds}, at least {fewest} on each side are needed{among}"
        needed = max(needed or 0, fewest)
    elif is_clear and gap < least:
        text = f"cannot tell whether it matters: {shown}, where {score(least)} matters"
    elif is_clear and found.value * (_iqm(ours) - _iqm(theirs)) < 0:
        text = f"cannot tell: the means differ by {shown}, the IQMs in the other direction"
    elif is_clear:
        word = "better" if found.value > 0 else "worse"
        side, share = ("higher", won) if word == "better" else ("lower", 1 - won)
        text = (
            f"{word} by {score(gap)} [{score(ends[0])}, {score(ends[1])}], p = {p:.2g}; "
            f"{side} in {share * 100:.0f} % of the pairs of seeds"
        )
    else:
        text = f"cannot tell: difference {shown}, p = {p:.2g}"
        if needed is None and gap:
            text += f"; more than {stats.MOST_SEEDS} seeds would be needed"
        elif needed is not None and needed > n:
            text += f"; about {needed} seeds on each side would tell"
    return Verdict(ours.label, theirs.label, ours.env_id, word, text, found, p, least, won, needed)


def _iqm(group: GroupResult) -> float:
    return float(stats.iqm(stats.as_scores(group.scores)))


def smallest_difference(ours: GroupResult, theirs: GroupResult, margin: str = MARGIN) -> float:
    """The smallest difference of scores that matters."""
    value, is_share = read_margin(margin)
    if not is_share:
        return value
    known = theirs.score_range or ours.score_range
    return value * (known or float(np.ptp([*ours.scores, *theirs.scores])))


def read_margin(text: str) -> tuple[float, bool]:
    """The number of "5" or "1%", and whether it is a share of the range of scores."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ConfigError(f"margin {text}: expected a score such as 5, or a share such as 1%")
    is_share = text.strip().endswith("%")
    return (value / 100 if is_share else value), is_share


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
    table = {name: [row.get(name, "-") for row in facts] for each in facts for name in each}
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
    tables = {
        name: np.array([*zip_longest(*(rows[env] for env in envs), fillvalue=np.nan)])
        for name, rows in complete.items()
    }
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
