"""Curves of groups of seeds: IQM with its interval from four seeds on, thin raw lines."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.chart_style import COLOURS, STYLE
from gymnasium_solver.experiments.compare import OverEnvironments
from gymnasium_solver.experiments.groups import VAL, Group
from gymnasium_solver.experiments.statistics import moving_average
from gymnasium_solver.runs.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_IN_A_COLUMN = 4  # panels; more are drawn in two columns
MOST_IN_A_PANEL = 6  # groups whose legend is inside the panel
UNEVEN = 8  # longest by shortest group, from which on the x axis is logarithmic
X_LABELS = {"env_steps": "env steps", "wall_s": "seconds of training"}


# Algorithms have the same colour in every picture; the others take the colours that are left.
FIXED = {"ppo": 0, "dqn": 1, "sac": 2, "reinforce": 3, "pqn": 4, "td3": 5, "sarsa": 6}


DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1.2), (6, 1.5, 1, 1.5))
"""Lines of the first seven groups are solid, those of the next seven dashed, and so on."""


@dataclass(frozen=True)
class Look:
    colour: str
    dashes: tuple[float, ...] = ()


def looks(groups: Sequence[Group]) -> list[Look]:
    """A look for each group: the colour of its algorithm, if no other group has taken it, else one
    that is free. Where all colours are taken, they are used again with other dashes."""
    taken: list[int | None] = []
    for group in groups:
        place = FIXED.get(group.members[0].summary.algo_id)
        taken.append(None if place in taken else place)
    every = range(len(COLOURS) * len(DASHES))
    free = cycle([place for place in every if place not in taken])
    places = [next(free) if place is None else place for place in taken]
    return [Look(COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS)]) for i in places]


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
    envs = list(dict.fromkeys(group.env_id for group in groups))
    own_looks: dict[str, Look] = {}
    n_panels = len(envs) + (over is not None)
    n_columns = 2 if n_panels > MOST_IN_A_COLUMN else 1
    with saved_figure(path, n_panels, n_columns, (9, 4.4)) as panels:
        for env_id, ax in zip(envs, panels, strict=False):
            own = [group for group in groups if group.env_id == env_id]
            for group, look in zip(own, looks(own), strict=True):
                own_looks.setdefault(group.label.partition(":")[2] or group.label, look)
                _draw_group(ax, group, look, x, metric, smooth, len(own) <= MOST_IN_A_PANEL)
            _finish(ax, own, x, metric)
        if over is not None:
            _draw_profiles(panels[n_panels - 1], over, own_looks)


@contextmanager
def saved_figure(
    path: Path, n_panels: int, n_columns: int, size: tuple[float, float]
) -> Iterator[list["Axes"]]:
    """The panels of a picture, each of this size, which is written at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    n_rows = -(-n_panels // n_columns)
    # Names come from files: `$` is a character, not mathematics.
    with matplotlib.rc_context({**STYLE, "text.parse_math": False}):
        figure, axes = pyplot.subplots(
            n_rows, n_columns, figsize=(size[0] * n_columns, size[1] * n_rows),
            layout="constrained", squeeze=False,
        )  # fmt: skip
        panels = list(axes.flat)
        for ax in panels[n_panels:]:
            ax.set_axis_off()
        try:
            yield panels[:n_panels]
            figure.savefig(path)
        finally:
            pyplot.close(figure)


def _draw_profiles(ax: "Axes", over: OverEnvironments, own_looks: Mapping[str, Look]) -> None:
    for name, (share, low, high) in over.profiles.items():
        look = own_looks.get(name, Look(COLOURS[-1]))
        ax.plot(over.thresholds, share, color=look.colour, dashes=look.dashes, linewidth=2.2,
                label=name)  # fmt: skip
        ax.fill_between(over.thresholds, low, high, color=look.colour, alpha=0.18, linewidth=0)
    ax.set_title(f"performance profile over {len(over.env_ids)} environments")
    ax.set_xlabel("normalised score (0: random actions, 1: threshold or reference)")
    ax.set_ylabel("share of runs above")
    ax.legend(fontsize=9)


def _draw_group(
    ax: "Axes", group: Group, look: Look, x: str, metric: str, smooth: int, with_seeds: bool
) -> None:
    curves = [_smoothed(curve, smooth) for curve in group.curve_set(metric, x)]
    n = sum(bool(curve) for curve in curves)
    label = f"{group.label.removeprefix(group.env_id + ':')} (n = {n})"  # the title has the env
    line: dict[str, Any] = {"color": look.colour, "dashes": look.dashes, "label": label}
    thin: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.35}
    center = group.center(curves)
    if n == 1:
        ax.plot(*zip(*next(filter(None, curves)), strict=True), **thin, **line)
    if center is None:
        return
    for curve in curves if with_seeds else ():
        ax.plot([at for at, _ in curve], [y for _, y in curve], color=look.colour, **thin)
    ax.plot(center.x, center.middle, linewidth=2.2, **line)
    if center.has_interval:
        alpha = 0.18 if with_seeds else 0.10
        ax.fill_between(center.x, center.low, center.high, color=look.colour, alpha=alpha,
                        linewidth=0)  # fmt: skip


def _smoothed(curve: Curve, window: int) -> list[tuple[float, float]]:
    known = [(float(x), y) for x, y in curve if y is not None]
    if window <= 1:
        return known
    values = moving_average([y for _, y in known], window)
    return [(x, y) for (x, _), y in zip(known, values, strict=True)]


def _finish(ax: "Axes", groups: Sequence[Group], x: str, metric: str = VAL) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    thresholds = {g.threshold for g in groups if g.threshold is not None}
    for threshold in sorted(thresholds) if metric == VAL else ():
        ax.axhline(threshold, color="#666666", linewidth=1.1, linestyle=(0, (5, 4)))
    ax.set_title(groups[0].env_id)
    ax.set_xlabel(X_LABELS[x])
    what = "return, evaluations" if metric == VAL else metric
    ax.set_ylabel(f"{what}: IQM and 95 % interval")
    if _are_lengths_uneven(groups):
        ax.set_xscale("log")
        ax.set_xlabel(f"{X_LABELS[x]} (log scale)")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    if len(groups) <= MOST_IN_A_PANEL:
        ax.legend(fontsize=9)
    else:  # beside the curves, which it would hide
        ax.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _are_lengths_uneven(groups: Sequence[Group]) -> bool:
    """Whether some of many groups are so short that a common linear axis would squash them."""
    lengths = [max(m.summary.env_steps for m in group.members) for group in groups]
    return len(groups) > 3 and max(lengths) > UNEVEN * max(1, min(lengths))
