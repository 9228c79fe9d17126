"""The report of several runs as one HTML file: groups of seeds with IQM, intervals and verdicts,
then the single runs."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from gymnasium_solver.chart_style import COLOURS
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.compare import compare
from gymnasium_solver.experiments.groups import VAL, Group, group_runs
from gymnasium_solver.experiments.pictures import REACHED
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, band, on_grid
from gymnasium_solver.experiments.tables import HEADS, notes, rows
from gymnasium_solver.runs.html_page import Line, html_table, legend, line_chart
from gymnasium_solver.runs.query import RunDetails
from gymnasium_solver.runs.report import runs_page

REPEATS = 1_000


def comparison_page(runs: Sequence[RunDetails], root: Path) -> str:
    """One page about several runs under `root`."""
    return runs_page(runs, sections=_sections(runs, root))


def _sections(runs: Sequence[RunDetails], root: Path) -> list[str]:
    """What the groups add to the page; nothing if the runs cannot be grouped."""
    try:
        groups = group_runs([facts.run.id for facts in runs], root)
    except RunError:
        return []  # a config cannot be read; the single runs are shown all the same
    if all(len(group.members) < 2 for group in groups):
        return []
    scored = [group for group in groups if group.scores]
    parts = []
    if scored:
        comparison = compare(scored)
        lines = "".join(f"<li>{escape(note)}</li>" for note in notes(comparison))
        table = html_table(HEADS, rows(comparison.groups))
        parts.append(f"<h2>Groups of seeds</h2>{table}<ul>{lines}</ul>")
    for env_id in dict.fromkeys(group.env_id for group in groups):
        parts.append(_chart(env_id, [g for g in groups if g.env_id == env_id]))
    return parts


def _chart(env_id: str, groups: Sequence[Group]) -> str:
    lines: list[Line] = []
    keys = []
    for i, group in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        curves = group.curve_set(VAL)
        n = sum(bool(curve) for curve in curves)
        keys.append((colour, f"{group.label} (n = {n})", 1.0))
        width, opacity = (1.0, 0.35) if n > 1 else (2.0, 1.0)
        lines += [Line(group.label, c, colour, width, opacity) for c in curves if c]
        if n >= 2:
            reached = [member.summary.stop_reason in REACHED for member in group.members]
            lines.append(_center(group.label, curves, reached, colour, n))
    level = next((group.threshold for group in groups if group.threshold is not None), None)
    chart = line_chart(lines, level=level, height=320)
    text = "thick: IQM over seeds, band: 95 % bootstrap interval over seeds; thin: single seeds"
    return (
        f"<h2>{escape(env_id)}: evaluations</h2><figure>{chart}"
        f'<figcaption>{legend(keys)} <span class="quiet">{text}</span></figcaption></figure>'
    )


def _center(
    label: str,
    curves: Sequence[Sequence[tuple[float, float | None]]],
    reached: Sequence[bool],
    colour: str,
    n: int,
) -> Line:
    grid, values = on_grid(curves, is_final=reached)
    middle, low, high = band(np.asarray(values), repeats=REPEATS)
    points = list(zip(grid.tolist(), middle.tolist(), strict=True))
    ends = zip(grid.tolist(), low.tolist(), high.tolist(), strict=True)
    return Line(label, points, colour, width=2.4, band=list(ends) if n >= FEWEST_SEEDS else ())
