"""What verbs print: one console, tables without borders, JSON, numbers, and the colours of all.

from gymnasium_solver.cli import output as out

if not out.told_json(args, data):            # with --json the data, and nothing else
    out.show(out.table("run", ">env steps", rows=rows), f"{out.duration(seconds)} of training")
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gymnasium_solver.printable import escaped, printable, printable_lines
from gymnasium_solver.runs.files import jsonable

if TYPE_CHECKING:
    from gymnasium_solver.cli.flags import Args
    from gymnasium_solver.runs.query import RunSummary

# A palette for the colour-blind (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
GREY = "bright_black"
PIPED_WIDTH = 160  # without a terminal, do not wrap at 80 columns
GAP = "  "
REFRESH_S = 0.5
TICKS = "▁▂▃▄▅▆▇"  # no full block: bars of neighbouring rows would merge
COLUMN_OPTIONS: dict[str, dict[str, Any]] = {
    ">": {"justify": "right", "no_wrap": True},
    "=": {"no_wrap": True},
    "~": {"overflow": "fold"},
}


class SafeConsole(Console):
    """A console on which no text moves the cursor or changes the terminal: what is printed may have
    been read from the files of a stranger."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control is None and not text.isprintable():  # isprintable is much the fastest test
                segment = Segment(printable_lines(text), style)
            yield segment

    def print(self, *things: Any, **options: Any) -> None:
        """As rich prints; a table without a terminal has no trailing blanks."""
        if self.is_terminal or not (things and isinstance(things[0], Table | PlainRows)):
            super().print(*things, **options)
        elif isinstance(things[0], PlainRows):
            self.file.write("".join(f"{line}\n" for line in things[0].lines()))
        else:
            with self.capture() as capture:
                super().print(*things)
            self.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))

    def say(self, thing: object, style: str = "") -> None:
        """Print a text as it is, not wrapped, so that it can be copied; or a table."""
        is_table = isinstance(thing, Table | PlainRows)
        text = thing if is_table or isinstance(thing, Text) else str(thing)
        self.print(text, style=style, soft_wrap=not is_table)


def linked(style: str, url: str) -> str:
    """The style with a link that terminals open by a click (OSC 8). Without one if the URL is not
    of a safe form, or on the console of Linux, which shows such links as text."""
    is_safe = re.fullmatch(r"(https?|file)://[!-~]+", url) and os.environ.get("TERM") != "linux"
    own = "" if style == "none" else style
    return f"{own} link {url}".strip() if is_safe else style


def make_console(stderr: bool = False) -> SafeConsole:
    """A console as wide as the terminal, or wide enough for whole rows without one."""
    console = SafeConsole(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def show(*things: object, style: str = "") -> None:
    """Print texts as they are, and tables, one below the other."""
    console = make_console()
    for thing in things:
        console.say(thing, style)


def complain(text: str) -> None:
    """Print a line to the standard error."""
    make_console(stderr=True).say(text)


class LiveView:
    """What is drawn again and again while something runs, if there is a terminal and not `quiet`:
    `is_shown`. Used as a context manager."""

    def __init__(self, console: SafeConsole, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.is_shown = console.is_terminal and not quiet
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        if self.is_shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_shown:
            self._live.stop()

    def draw(self, make: Callable[[], RenderableType]) -> None:
        """Draw what `make` returns, unless that was done a moment ago."""
        if self.is_shown and time.monotonic() - self._drawn_s >= REFRESH_S:
            self._drawn_s = time.monotonic()
            self._live.update(make(), refresh=True)


def print_json(value: Any) -> None:
    """Print a value as JSON: a number that is not finite is null, and control characters are
    escaped."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    print(escaped(text))


def told_json(args: "Args", data: Any) -> bool:
    """Print the data, or what makes them, if there is a --json; returns whether there is."""
    if args.json:
        print_json(data() if callable(data) else data)
    return bool(args.json)


def tell(args: "Args", data: Any, *things: object) -> None:
    """Print the data as JSON with --json; else the texts and tables."""
    if not told_json(args, data):
        show(*things)


def table(*columns: str, rows: Iterable[Sequence[RenderableType]] = ()) -> Table:
    """A table without borders. The first sign of a column's name: `>` numbers, aligned to the right
    and never wrapped; `=` never wrapped; `~` folded where a word is too long."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=GREY)
    for name in columns:
        options = COLUMN_OPTIONS.get(name[:1], {})
        made.add_column(name[1:] if options else name, **options)
    for row in rows:
        made.add_row(*row)
    return made


def pairs(rows: Iterable[tuple[str, str | Text]], indent: int = 2) -> Table:
    """One label and text per line; long text wraps in its own column."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=GREY, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(" " * indent + label, text if isinstance(text, Text) else Text(text))
    return grid


def status_text(run: "RunSummary") -> Text:
    """A run's status; a star where its held-out test reached the threshold."""
    if run.solved and run.status == "finished":
        return Text("★ solved", GREEN)
    colour = {"running": SKY, "failed": "red", "killed": "red", "interrupted": ORANGE}
    text = printable(run.status) + (" ★" if run.solved else "")
    return Text(text, colour.get(run.status, "none"))


@dataclass
class Column:
    """A column of PlainRows: texts, or (text, style)."""

    name: str
    cells: list[tuple[str, str]] = field(default_factory=list)
    is_right: bool = False

    @property
    def width(self) -> int:
        return max(cell_len(self.name), *(cell_len(text) for text, _ in self.cells), 0)


class PlainRows:
    """A table of one line per row, for thousands of rows. rich's Table measures and wraps every
    cell, which takes most of a millisecond a row; here widths are computed once."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(column.width, column.is_right) for column in columns]
        heads = [(column.name, GREY) for column in columns]
        self._rows = [heads, *zip(*(column.cells for column in columns), strict=True)]

    def lines(self) -> Iterator[str]:
        """Without colours and trailing blanks."""
        for row in self._rows:
            yield GAP.join(text for text, _ in self._padded(row)).rstrip()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        styles = {style for row in self._rows for _, style in row} - {"none"}
        known: dict[str, Style] = {style: console.get_style(style) for style in styles}
        for row in self._rows:
            for i, (text, style) in enumerate(self._padded(row)):
                yield Segment(GAP + text if i else text, known.get(style))
            yield Segment.line()

    def _padded(self, row: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for (text, style), (width, is_right) in zip(row, self._columns, strict=True):
            blanks = " " * (width - cell_len(text))
            yield (blanks + text if is_right else text + blanks), style


# --- numbers, durations, histories


def number(value: float | int | None, precision: int | None = None) -> str:
    """A readable number: 1,234 · 487.3 · 0.0003 · 2.1e-06 · - for None or NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if math.isinf(value) or (isinstance(value, int) and precision is None):
        return f"{value:,}"
    if precision is None:
        precision = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    if value and abs(value) < 0.5 * 10**-precision:
        return f"{value:.1e}"
    return f"{value:,.{precision}f}"


def signed(value: float, precision: int) -> str:
    """A change with its sign; one that rounds to zero is a dot."""
    text = number(abs(value), precision)
    if not text.strip("0.,"):
        return "·"
    return ("+" if value > 0 else "-") + text


def steps_per_second(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.2f}M steps/s"
    return f"{value / 1e3:.1f}k steps/s" if value >= 1e4 else f"{value:,.0f} steps/s"


def duration(seconds: float | None) -> str:
    """4.2 s · 3:07 · 2:15:09 · 3 d 04:12."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The history of a value as at most `width` bars, means over equal intervals, scaled from its
    minimum to its maximum."""
    n, width = len(values), min(width, len(values))
    if width < 1:
        return ""
    cuts = [i * n // width for i in range(width + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(TICKS) - 1) / (high - low) if high > low else 0.0
    return "".join(TICKS[round((mean - low) * scale)] for mean in means)


def file_size(n_bytes: int) -> str:
    """812 B, 3.4 MB."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
