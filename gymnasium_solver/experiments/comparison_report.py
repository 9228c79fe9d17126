"""A comparison for people: the rows of its table, Markdown, CSV, the summary of an experiment, and
an HTML page about several runs."""

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.chart_style import COLOURS
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.compare import (
    MEASURES,
    Comparison,
    GroupResult,
    compare,
)
from gymnasium_solver.experiments.curve_pictures import draw
from gymnasium_solver.experiments.groups import VAL, Group, group_runs
from gymnasium_solver.experiments.statistics import METRICS, Estimate
from gymnasium_solver.paths import cannot_write_file
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.runs.html_page import Line, html_table, legend, line_chart
from gymnasium_solver.runs.query import RunDetails, get_details
from gymnasium_solver.runs.report import markdown as run_markdown
from gymnasium_solver.runs.report import run_page, runs_page
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText

HEADS = ("group", "seeds", "IQM [95 %]", "mean", "solved", "solved after", "time")
REPORT, PICTURE = "report.md", "curves.png"
REPEATS = 1_000  # of the bands in a page


def rows(groups: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for group in groups:
        score = ScoreText(group.threshold, group.scores)
        row = (
            group.label,
            str(len(group.scores)),
            estimate_text(group.iqm, score) + "*" * bool(group.n_untested),
            score(group.mean.value),
            "-" if group.threshold is None else f"{group.n_solved} of {len(group.runs)}",
            "-" if group.solved_at is None else f"{group.solved_at:,.0f} steps",
            f"{group.wall_s:,.0f} s",
        )
        table.append(row)
    return table


def estimate_text(found: Estimate, score: ScoreText) -> str:
    ends = "" if found.n < 2 else f" [{score(found.low)}, {score(found.high)}]"
    return score(found.value) + ends


def notes(comparison: Comparison) -> list[str]:
    """Sentences below the table: verdicts, and what limits them."""
    lines = [f"{v.first} against {v.second}: {v.text}" for v in comparison.verdicts]
    envs = [verdict.env_id for verdict in comparison.verdicts]
    if len(envs) > len(set(envs)):
        lines.append(
            "several comparisons in an environment are corrected for their number (Holm): all of "
            "them together are wrong in at most 5 % of cases"
        )
    lines += [text for group in comparison.groups if (text := _against_random(group))]
    for name, found in (comparison.aggregate or {}).items():
        text = estimate_text(found, ScoreText(1.0))
        rank = f", mean rank {comparison.ranks[name]:.2f}" if comparison.ranks else ""
        lines.append(f"{name}, normalised over environments: IQM {text}{rank}")
    if any(group.n_untested for group in comparison.groups):
        lines.append("* some runs were not tested; their best validation counts, which is too high")
    if comparison.machines:
        lines.append(f"the machines differ: {', '.join(comparison.machines)}")
    return lines


def _against_random(group: GroupResult) -> str:
    """A sentence where a group is not clearly above random actions."""
    if group.random is None or group.iqm.n < 2 or group.iqm.low > group.random:
        return ""
    score = ScoreText(group.threshold, [*group.scores, group.random])
    return f"{group.label}: not clearly above random actions ({score(group.random)})"


def markdown(comparison: Comparison) -> str:
    table = markdown_table(HEADS, rows(comparison.groups))
    parts = [table, "\n".join(f"- {note}" for note in notes(comparison))]
    if any(group.measures for group in comparison.groups):
        measured = [
            (group.label, "-" if group.random is None else f"{group.random:.4g}",
             *(f"{group.measures[n]:.4g}" if n in group.measures else "-" for n in MEASURES))
            for group in comparison.groups
        ]  # fmt: skip
        heads = ("group", "random", *(name.replace("_", " ") for name in MEASURES))
        parts += ["## Measures", markdown_table(heads, measured)]
    if (over := comparison.over_environments) is not None:
        aggregated = [
            (name, *(estimate_text(found[m], ScoreText(1.0)) for m in METRICS),
             f"{np.mean(over.ranks[name]):.2f}")
            for name, found in over.aggregates.items()
        ]  # fmt: skip
        heads = ("config", *(name.replace("_", " ") for name in METRICS), "mean rank")
        parts += ["## Normalised scores over environments", markdown_table(heads, aggregated)]
    labels = [group.label for group in comparison.groups]
    named = {"Fields that differ": comparison.differences, "Machines": comparison.machines}
    for title, fields in named.items():
        if fields:
            cells = [(name, *map(value_text, values)) for name, values in fields.items()]
            parts += [f"## {title}", markdown_table(("", *labels), cells)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *cells]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def csv_text(comparison: Comparison) -> str:
    """One line per seed."""
    lines: list[tuple[Any, ...]] = [("group", "env_id", "run", "seed", "score")]
    for group in comparison.groups:
        seeds = zip(group.runs, group.seeds, group.scores, strict=False)
        lines += [(group.label, group.env_id, *seed) for seed in seeds]
    return csv_lines(lines)


def csv_lines(lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def write_summary(folder: Path, comparison: Comparison, groups: Sequence[Group]) -> Path:
    """Write report.md, scores.csv, comparison.json and curves.png of an experiment; returns the
    report."""
    with writing("the summary", folder):
        draw(groups, folder / PICTURE, over=comparison.over_environments)
        text = f"# {folder.name}\n\n{markdown(comparison)}\n![Learning curves]({PICTURE})\n"
        write_atomic(folder / REPORT, text.encode())
        write_atomic(folder / "scores.csv", csv_text(comparison).encode())
        data = json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, default=str) + "\n"
        write_atomic(folder / "comparison.json", data.encode())
    return folder / REPORT


# -- the page -------------------------------------------------------------------------------------


def write_page(path: Path, runs: Sequence[Run]) -> None:
    """Write one page about these runs, as Markdown or HTML by the name of the file."""
    details = [get_details(run) for run in runs]
    roots = {run.path.parent for run in runs}
    if path.suffix.lower() == ".md":
        text = "\n\n".join(run_markdown(one) for one in details)
    elif len(details) == 1:
        text = run_page(details[0])
    else:
        text = comparison_page(details, roots.pop()) if len(roots) == 1 else runs_page(details)
    try:
        write_atomic(path, text.encode(errors="replace"))
    except OSError as error:
        raise cannot_write_file("the report", path, error) from None


def comparison_page(runs: Sequence[RunDetails], root: Path) -> str:
    """One page about several runs under `root`: groups of seeds with IQM, intervals and verdicts,
    then the single runs."""
    try:
        groups = group_runs([facts.run.id for facts in runs], root)
    except RunError:
        groups = []  # a config cannot be read; the single runs are shown all the same
    parts = []
    if any(len(group.members) > 1 for group in groups):
        if scored := [group for group in groups if group.scores]:
            comparison = compare(scored)
            lines = "".join(f"<li>{escape(note)}</li>" for note in notes(comparison))
            table = html_table(HEADS, rows(comparison.groups))
            parts.append(f"<h2>Groups of seeds</h2>{table}<ul>{lines}</ul>")
        for env_id in dict.fromkeys(group.env_id for group in groups):
            parts.append(_chart(env_id, [g for g in groups if g.env_id == env_id]))
    return runs_page(runs, sections=parts)


def _chart(env_id: str, groups: Sequence[Group]) -> str:
    lines: list[Line] = []
    keys = []
    for i, group in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        curves = [curve for curve in group.curve_set(VAL) if curve]
        keys.append((colour, f"{group.label} (n = {len(curves)})", 1.0))
        width, opacity = (1.0, 0.35) if len(curves) > 1 else (2.0, 1.0)
        lines += [Line(group.label, curve, colour, width, opacity) for curve in curves]
        if (center := group.center(group.curve_set(VAL), REPEATS)) is not None:
            x, y, low, high = (
                part.tolist() for part in (center.x, center.middle, center.low, center.high)
            )
            band = list(zip(x, low, high, strict=True)) if center.has_interval else ()
            points = list(zip(x, y, strict=True))
            lines.append(Line(group.label, points, colour, width=2.4, band=band))
    level = next((group.threshold for group in groups if group.threshold is not None), None)
    chart = line_chart(lines, level=level, height=320)
    text = "thick: IQM over seeds, band: 95 % bootstrap interval over seeds; thin: single seeds"
    return (
        f"<h2>{escape(env_id)}: evaluations</h2><figure>{chart}"
        f'<figcaption>{legend(keys)} <span class="quiet">{text}</span></figcaption></figure>'
    )
