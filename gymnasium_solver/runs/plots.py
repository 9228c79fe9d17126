"""Learning curves as pictures: returns of one or several runs, and panels of other metrics.

curves = [read_curves(ref, root) for ref in refs]
draw(curves, choose_panels(curves, None), Path("curves.png"))
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gymnasium_solver.chart_style import COLOURS, styled_pyplot
from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import writing_file
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.curves import choose_name
from gymnasium_solver.runs.metrics import PANELS, SPREAD, TRAIN, VAL, own_metrics
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import MetricTable
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

RETURNS = "returns"
X_LABELS = {"env_steps": "env steps", "wall_s": "seconds of training"}


@dataclass
class Curves:
    """The curves of a run to draw."""

    id: str
    title: str
    threshold: float | None
    series: Mapping[str, Points]


def read_curves(ref: str | Run, root: Path | None = None, x: str = "env_steps") -> Curves:
    """The curves of a run over env steps, or over `wall_s`, the seconds of training."""
    run = get_run(ref, root)
    table = MetricTable(Run(Path(run.path)))
    table.refresh()
    series: dict[str, Points] = {}
    for name in table.names:
        at, values = table.series(name, x)
        pairs = zip(at.tolist(), values.tolist(), strict=True)
        if points := [(place, y) for place, y in pairs if y == y]:
            series[name] = points
    return Curves(run.id, run.name, run.threshold, series)


def choose_panels(curves: list[Curves], wanted: list[str] | None) -> list[str]:
    """The panels to draw: "returns" and details, or the requested metrics."""
    known = sorted({name for run in curves for name in run.series})
    if not known:
        names = ", ".join(run.id for run in curves)
        raise RunError(f"nothing to plot: no metrics are logged yet in {names}")
    if wanted:
        return [choose_name(name, known) for name in wanted]
    if len(curves) > 1:
        return [RETURNS]
    # A constant (no critic, a fixed rate) shows nothing; a single point may still change.
    drawn = {name: curves[0].series.get(name, []) for name in (*PANELS, *own_metrics(known))}
    changing = [n for n, at in drawn.items() if len({y for _, y in at}) > 1 or len(at) == 1]
    return [RETURNS, *changing]


def draw(
    curves: list[Curves],
    panels: list[str],
    output: Path | BinaryIO,
    x_label: str = X_LABELS["env_steps"],
    *,
    title: str = "",
    size: tuple[int, int] = (0, 0),
) -> None:
    """Write the picture to a file, in the format of its suffix, or to a buffer as PNG. `size`:
    width and height in pixels; 0: as fits the panels."""
    with styled_pyplot() as pyplot:
        figure, axes = _layout(len(panels))
        _resize(figure, *size)
        for ax, panel in zip(axes, panels, strict=True):
            for i, run in enumerate(curves):
                colour = COLOURS[i % len(COLOURS)]
                if panel == RETURNS:
                    _draw_returns(ax, run, colour, alone=len(curves) == 1)
                    continue
                points = run.series.get(panel, [])
                marker, label = "o" if len(points) == 1 else None, printable(run.id)
                ax.plot(*_split(points), color=colour, linewidth=1.4, marker=marker, label=label)
            _finish(ax, panel, curves, x_label)
        titles = sorted({run.title for run in curves})
        more = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
        named = ", ".join(titles[:3]) + more
        named += f"   {printable(curves[0].id)}" if len(curves) == 1 else ""
        shown = printable(title) or named
        figure.suptitle(shown, x=0.01, ha="left", fontweight="bold", fontsize=13)
        try:
            with writing_file("the image", output) if isinstance(output, Path) else nullcontext():
                figure.savefig(output, dpi=figure.dpi)
        finally:
            pyplot.close(figure)


def _resize(figure: "Figure", width: int, height: int) -> None:
    """Give a figure this many pixels. Text shrinks with it, so that the panels keep some room."""
    own_width, own_height = figure.get_size_inches()
    scales = [figure.dpi if not width else width / own_width]
    scales += [height / (0.6 * own_height)] if height else []
    figure.set_dpi(dpi := min(scales))
    figure.set_figwidth(width / dpi if width else own_width)
    figure.set_figheight(height / dpi if height else own_height)


def _layout(n: int) -> "tuple[Figure, list[Axes]]":
    """One wide panel, and below it the others in rows of up to three that fill the width."""
    from matplotlib import pyplot

    n_rows = -(-(n - 1) // 3)
    figure = pyplot.figure(figsize=(10, 4.6 + 2.3 * n_rows), layout="constrained")
    grid = figure.add_gridspec(1 + n_rows, 6, height_ratios=[4.2, *[2.3] * n_rows])
    axes = [figure.add_subplot(grid[0, :])]
    for row in range(n_rows):
        n_panels = (n - 1 + row) // n_rows  # as even as possible, shorter rows first
        width = 6 // n_panels
        for column in range(n_panels):
            axes.append(figure.add_subplot(grid[1 + row, column * width : (column + 1) * width]))
    return figure, axes


def _split(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _draw_returns(ax: "Axes", run: Curves, colour: str, *, alone: bool) -> None:
    train, val = run.series.get(TRAIN, []), run.series.get(VAL, [])
    spread = dict(run.series.get(SPREAD, []))
    name = "" if alone else f"{printable(run.id)} "
    if train:
        label = "training episodes" if alone else None
        ax.plot(*_split(train), color=colour, linewidth=1.2, alpha=0.45, label=label)
    if val:
        x, mean = _split(val)
        low = [y - spread.get(step, 0.0) for step, y in val]
        high = [y + spread.get(step, 0.0) for step, y in val]
        label = "evaluations (± std)" if alone else name
        marker = "o" if len(val) <= 60 else None
        ax.plot(x, mean, color=colour, linewidth=2.2, marker=marker, markersize=4, label=label)
        ax.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    elif not alone and train:
        ax.lines[-1].set_label(f"{name}(training)")


def _finish(ax: "Axes", panel: str, curves: list[Curves], x_label: str) -> None:
    """Add the threshold, labels, legend and step ticks."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    if panel in (RETURNS, TRAIN, VAL):
        thresholds = {run.threshold for run in curves if run.threshold is not None}
        for threshold in sorted(thresholds):
            label, dashed = f"solved at {ScoreText(threshold).threshold}", (0, (5, 4))
            ax.axhline(threshold, color="#666666", linewidth=1.2, linestyle=dashed, label=label)
    several = " (thick: evaluations ± std, thin: training)" if len(curves) > 1 else ""
    ax.set_title(f"return{several}" if panel == RETURNS else printable(panel))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10 if panel == RETURNS else 4))
    ax.set_xlabel(x_label)
    ax.margins(x=0.01)
    ax.set_xlim(left=0)
    if (panel == RETURNS or len(curves) > 1) and ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=9, loc="best")
