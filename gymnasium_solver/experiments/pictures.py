"""Curves of groups of seeds: IQM with its interval where there are three seeds, thin raw lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.chart_style import COLOURS, STYLE
from gymnasium_solver.experiments.groups import VAL, Group
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, band, on_grid
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[float, float]]
REACHED = ("solved", "goal_reached_eval", "goal_reached_train")
X_LABELS = {"env_steps": "env steps", "wall_s": "seconds of training"}


def draw(groups: Sequence[Group], path: Path, x: str = "env_steps", metric: str = VAL) -> None:
    """One panel per environment."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    envs = list(dict.fromkeys(group.env_id for group in groups))
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            len(envs), 1, figsize=(9, 4.4 * len(envs)), layout="constrained", squeeze=False
        )
        for env_id, ax in zip(envs, axes[:, 0], strict=True):
            own = [group for group in groups if group.env_id == env_id]
            for i, group in enumerate(own):
                _draw_group(ax, group, COLOURS[i % len(COLOURS)], x, metric)
            _finish(ax, own, x)
        try:
            figure.savefig(path)
        finally:
            pyplot.close(figure)


def _draw_group(ax: "Axes", group: Group, colour: str, x: str, metric: str) -> None:
    curves = [_points(Run(Path(member.summary.path)), x, metric) for member in group.members]
    n = sum(bool(curve) for curve in curves)
    label = f"{group.label} (n = {n})"
    for curve in curves:
        xs, ys = [p[0] for p in curve], [p[1] for p in curve]
        ax.plot(xs, ys, color=colour, linewidth=0.9, alpha=0.35, label=label if n == 1 else None)
    if n < 2:
        return
    reached = [member.summary.stop_reason in REACHED for member in group.members]
    grid, values = on_grid(curves, is_final=reached)
    middle, low, high = band(values)
    ax.plot(grid, middle, color=colour, linewidth=2.2, label=label)
    if n >= FEWEST_SEEDS:
        ax.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)


def _points(run: Run, x: str, metric: str) -> Points:
    rows = get_rows(run)
    return [(row[x], row[metric]) for row in rows if row.get(metric) is not None and x in row]


def _finish(ax: "Axes", groups: Sequence[Group], x: str) -> None:
    from matplotlib.ticker import EngFormatter

    for threshold in sorted({g.threshold for g in groups if g.threshold is not None}):
        ax.axhline(threshold, color="#666666", linewidth=1.1, linestyle=(0, (5, 4)))
    ax.set_title(groups[0].env_id)
    ax.set_xlabel(X_LABELS[x])
    ax.set_ylabel("return, evaluations: IQM and 95 % interval")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    ax.legend(fontsize=9)
