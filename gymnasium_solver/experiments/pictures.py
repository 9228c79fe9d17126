"""Curves of groups of seeds: IQM with its interval where there are three seeds, thin raw lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.chart_style import COLOURS, STYLE
from gymnasium_solver.experiments.compare import OverEnvironments
from gymnasium_solver.experiments.groups import VAL, Group
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, band, moving_average, on_grid
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[float, float]]
REACHED = ("solved", "goal_reached_eval", "goal_reached_train")
X_LABELS = {"env_steps": "env steps", "wall_s": "seconds of training"}


# Algorithms have the same colour in every picture; the others take the colours that are left.
FIXED = {"ppo": 0, "dqn": 1, "sac": 2, "reinforce": 3, "pqn": 4, "td3": 5, "sarsa": 6}


def colours(groups: Sequence[Group]) -> list[str]:
    """A colour for each group: that of its algorithm, if no other group has taken it."""
    taken: list[int | None] = []
    for group in groups:
        place = FIXED.get(group.members[0].summary.algo_id)
        taken.append(None if place in taken else place)
    free = iter([i for i in range(len(COLOURS)) if i not in taken] or range(len(COLOURS)))
    chosen = []
    for i, place in enumerate(taken):
        chosen.append(place if place is not None else next(free, i))
    return [COLOURS[i % len(COLOURS)] for i in chosen]


def draw(
    groups: Sequence[Group],
    path: Path,
    x: str = "env_steps",
    metric: str = VAL,
    smooth: int = 1,
    over: OverEnvironments | None = None,
) -> None:
    """One panel per environment, and the performance profiles if there are several. `smooth`: the
    window of a moving average, in points."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    envs = list(dict.fromkeys(group.env_id for group in groups))
    own_colours: dict[str, str] = {}
    n_panels = len(envs) + (over is not None)
    with matplotlib.rc_context({**STYLE, "text.parse_math": False}):
        figure, axes = pyplot.subplots(
            n_panels, 1, figsize=(9, 4.4 * n_panels), layout="constrained", squeeze=False
        )
        for env_id, ax in zip(envs, axes[:, 0], strict=False):
            own = [group for group in groups if group.env_id == env_id]
            for group, colour in zip(own, colours(own), strict=True):
                own_colours.setdefault(group.label.partition(":")[2] or group.label, colour)
                _draw_group(ax, group, colour, x, metric, smooth)
            _finish(ax, own, x, metric)
        if over is not None:
            _draw_profiles(axes[-1, 0], over, own_colours)
        try:
            figure.savefig(path)
        finally:
            pyplot.close(figure)


def _draw_profiles(ax: "Axes", over: OverEnvironments, own_colours: Mapping[str, str]) -> None:
    for name, (share, low, high) in over.profiles.items():
        colour = own_colours.get(name, COLOURS[-1])
        ax.plot(over.thresholds, share, color=colour, linewidth=2.2, label=name)
        ax.fill_between(over.thresholds, low, high, color=colour, alpha=0.18, linewidth=0)
    ax.set_title(f"performance profile over {len(over.env_ids)} environments")
    ax.set_xlabel("normalised score (0: random actions, 1: threshold or reference)")
    ax.set_ylabel("share of runs above")
    ax.legend(fontsize=9)


def _draw_group(
    ax: "Axes", group: Group, colour: str, x: str, metric: str, smooth: int = 1
) -> None:
    raw = [_points(Run(Path(member.summary.path)), x, metric) for member in group.members]
    curves = [_smoothed(curve, smooth) for curve in raw]
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


def _smoothed(curve: Points, window: int) -> Points:
    if window <= 1:
        return curve
    values = moving_average([y for _, y in curve], window)
    return [(x, y) for (x, _), y in zip(curve, values, strict=True)]


def _points(run: Run, x: str, metric: str) -> Points:
    rows = get_rows(run)
    return [(row[x], row[metric]) for row in rows if row.get(metric) is not None and x in row]


def _finish(ax: "Axes", groups: Sequence[Group], x: str, metric: str = VAL) -> None:
    from matplotlib.ticker import EngFormatter

    thresholds = {g.threshold for g in groups if g.threshold is not None}
    for threshold in sorted(thresholds) if metric == VAL else ():
        ax.axhline(threshold, color="#666666", linewidth=1.1, linestyle=(0, (5, 4)))
    ax.set_title(groups[0].env_id)
    ax.set_xlabel(X_LABELS[x])
    what = "return, evaluations" if metric == VAL else metric
    ax.set_ylabel(f"{what}: IQM and 95 % interval")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    ax.legend(fontsize=9)
