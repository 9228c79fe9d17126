"""A comparison as text: the rows of its table, Markdown, CSV."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from gymnasium_solver.experiments.compare import Comparison, GroupResult, OverEnvironments
from gymnasium_solver.experiments.measures import NAMES
from gymnasium_solver.experiments.statistics import METRICS, Estimate
from gymnasium_solver.runs.words import ScoreText

HEADS = ("group", "seeds", "IQM [95 %]", "mean", "solved", "solved after", "time")


def rows(groups: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for group in groups:
        score = ScoreText(group.threshold, group.scores)
        solved = "-" if group.threshold is None else f"{group.n_solved} of {len(group.runs)}"
        star = "*" if group.n_untested else ""
        table.append(
            (
                group.label,
                str(len(group.scores)),
                estimate(group.iqm, score) + star,
                score(group.mean.value),
                solved,
                "-" if group.solved_at is None else f"{group.solved_at:,.0f} steps",
                f"{group.wall_s:,.0f} s",
            )
        )
    return table


def estimate(found: Estimate, score: ScoreText) -> str:
    ends = "" if found.n < 2 else f" [{score(found.low)}, {score(found.high)}]"
    return score(found.value) + ends


def notes(comparison: Comparison) -> list[str]:
    """Sentences below the table: verdicts, and what limits them."""
    lines = [f"{v.first} against {v.second}: {v.text}" for v in comparison.verdicts]
    if len(comparison.verdicts) > 1:
        lines.append(
            f"{len(comparison.verdicts)} comparisons: all of them together are wrong in at most "
            "5 % of cases (Holm's correction)"
        )
    lines += [text for group in comparison.groups if (text := _against_random(group))]
    if comparison.aggregate:
        for name, found in comparison.aggregate.items():
            text = estimate(found, ScoreText(1.0))
            rank = f", mean rank {comparison.ranks[name]:.2f}" if comparison.ranks else ""
            lines.append(f"{name}, normalised over environments: IQM {text}{rank}")
    if any(group.n_untested for group in comparison.groups):
        lines.append("* some runs were not tested; their best validation counts, which is too high")
    if comparison.machines:
        lines.append(f"the machines differ: {', '.join(comparison.machines)}")
    return lines


def measure_rows(groups: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    """Random score and SLM-Lab's measures of each group."""
    return [
        (
            group.label,
            "-" if group.random is None else f"{group.random:.4g}",
            *(f"{group.measures[n]:.4g}" if n in group.measures else "-" for n in NAMES),
        )
        for group in groups
    ]


def aggregate_rows(over: OverEnvironments) -> list[tuple[str, ...]]:
    """Normalised aggregates and ranks of each config."""
    text = ScoreText(1.0)
    return [
        (name, *(estimate(found[m], text) for m in METRICS), f"{np.mean(over.ranks[name]):.2f}")
        for name, found in over.aggregates.items()
    ]


def _against_random(group: GroupResult) -> str:
    """A sentence where a group is not clearly above random actions."""
    if group.random is None or group.iqm.n < 2 or group.iqm.low > group.random:
        return ""
    score = ScoreText(group.threshold, [*group.scores, group.random])
    return f"{group.label}: not clearly above random actions ({score(group.random)})"


def markdown(comparison: Comparison) -> str:
    parts = [_table(HEADS, rows(comparison.groups)), "\n".join(f"- {n}" for n in notes(comparison))]
    if any(group.measures for group in comparison.groups):
        heads = ("group", "random", *(name.replace("_", " ") for name in NAMES))
        parts += ["## Measures", _table(heads, measure_rows(comparison.groups))]
    if comparison.over_environments is not None:
        heads = ("config", *(name.replace("_", " ") for name in METRICS), "mean rank")
        parts += [
            "## Normalised scores over environments",
            _table(heads, aggregate_rows(comparison.over_environments)),
        ]
    labels = [group.label for group in comparison.groups]
    for title, table in (
        ("Fields that differ", comparison.differences),
        ("Machines", comparison.machines),
    ):
        if table:
            cells = [(name, *(_value(v) for v in values)) for name, values in table.items()]
            parts += [f"## {title}", _table(("", *labels), cells)]
    return "\n\n".join(part for part in parts if part) + "\n"


def csv_text(comparison: Comparison) -> str:
    """One line per seed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("group", "env_id", "run", "seed", "score"))
    for group in comparison.groups:
        for run, seed, score in zip(group.runs, group.seeds, group.scores, strict=False):
            writer.writerow((group.label, group.env_id, run, seed, score))
    return out.getvalue()


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *cells]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )
