"""Bar charts and figures of the benchmarks, in the style of `gsolve plot`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.chart_style import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY = COLOURS[0], "#9A9A9A"


def figure(
    n_rows: int, n_columns: int, size: tuple[float, float], **options: Any
) -> "tuple[Figure, list[Axes]]":
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE):
        drawn, axes = pyplot.subplots(
            n_rows, n_columns, figsize=size, layout="constrained", squeeze=False, **options
        )
    return drawn, list(axes.flat)


def bars(
    ax: "Axes",
    labels: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    *,
    ours: str,
    title: str,
    n_slots: int,
) -> None:
    """Horizontal bars, the first on top, ours in colour, each labelled with its value.

    With the same `n_slots` the bars of all panels have the same height.
    """
    colours = [BLUE if label == ours else GREY for label in labels]
    ax.barh(range(len(labels)), values, color=colours, height=0.62)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(n_slots - 0.5, -0.5)
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold")
    ax.grid(False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    for i, (value, text) in enumerate(zip(values, texts, strict=True)):
        ax.annotate(text, (value, i), (4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set_xlim(0, 1.28 * max(values, default=1.0))


def save(drawn: "Figure", path: Path, title: str) -> None:
    from matplotlib import pyplot

    drawn.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path)
    pyplot.close(drawn)
