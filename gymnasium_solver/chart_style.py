"""Colours, settings and files of all pictures by matplotlib."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: distinguishable with every common form of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#9A9A9A"
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#444444",
    "axes.edgecolor": "#999999",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "figure.dpi": 130,
}


@contextmanager
def styled_pyplot() -> Iterator[Any]:
    """matplotlib.pyplot in this style, without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Names come from files: `$` is a character, not mathematics.
    with matplotlib.rc_context({**STYLE, "text.parse_math": False}):
        yield pyplot


@contextmanager
def saved_figure(
    path: Path,
    n_panels: int,
    n_columns: int,
    size: tuple[float, float],
    title: str = "",
    **how: Any,
) -> Iterator[list["Axes"]]:
    """The panels of a picture of this size, which is written at the end."""
    n_rows = -(-n_panels // n_columns)
    with styled_pyplot() as pyplot:
        figure, axes = pyplot.subplots(
            n_rows, n_columns, figsize=size, layout="constrained", squeeze=False, **how
        )
        panels = list(axes.flat)
        for ax in panels[n_panels:]:
            ax.set_axis_off()
        try:
            yield panels[:n_panels]
            if title:
                figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
            figure.savefig(path)
        finally:
            pyplot.close(figure)
