"""Writes what an experiment or a benchmark came to: tables and curves, from run folders only."""

import json
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.experiments.compare import Comparison, OverEnvironments
from gymnasium_solver.experiments.groups import Group
from gymnasium_solver.experiments.tables import csv_text, markdown
from gymnasium_solver.runs.files import cannot_write, write_atomic

REPORT = "report.md"
PICTURE = "curves.png"


def write_summary(folder: Path, comparison: Comparison, groups: Sequence[Group]) -> Path:
    """Write report.md, scores.csv, comparison.json and curves.png; returns the report."""
    text = markdown(comparison)
    try:
        has_picture = _draw(groups, folder / PICTURE, comparison.over_environments)
        picture = f"\n![Learning curves]({PICTURE})\n" if has_picture else ""
        write_atomic(folder / REPORT, f"# {folder.name}\n\n{text}{picture}".encode())
        write_atomic(folder / "scores.csv", csv_text(comparison).encode())
        data = json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, default=str) + "\n"
        write_atomic(folder / "comparison.json", data.encode())
    except OSError as error:
        raise cannot_write("the summary", folder, error) from error
    return folder / REPORT


def _draw(groups: Sequence[Group], path: Path, over: OverEnvironments | None) -> bool:
    """Curves, if matplotlib is installed."""
    try:
        from gymnasium_solver.experiments.pictures import draw

        draw(groups, path, over=over)
    except ImportError:
        return False
    return True
