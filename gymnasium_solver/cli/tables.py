"""What verbs print: one console, tables without borders, JSON, and the colours of all of it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
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

    def say(self, text: object, style: str = "") -> None:
        """Print a text as it is: no markup, and not wrapped, so that it can be copied."""
        self.print(str(text), style=style, markup=False, soft_wrap=True)


def make_console(stderr: bool = False) -> SafeConsole:
    """A console as wide as the terminal, or wide enough for whole rows without one."""
    console = SafeConsole(highlight=False, stderr=stderr)
    if not console.is_terminal:
        console = SafeConsole(highlight=False, stderr=stderr, width=PIPED_WIDTH)
    return console


def print_json(value: Any) -> None:
    """Print a value as JSON: a number that is not finite is null, and control characters are
    escaped."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    print(escaped(text))


def tell(args: "Args", data: Any, text: str | Callable[[], object]) -> None:
    """Print the data as JSON with --json; else the text, or call what prints it."""
    if args.json:
        print_json(data() if callable(data) else data)
    elif callable(text):
        text()
    else:
        print(text)


def plain_table(*columns: str, rows: Iterable[Sequence[RenderableType]] = ()) -> Table:
    """A table without borders. The first sign of a column's name: `>` numbers, aligned to the right
    and never wrapped; `=` never wrapped; `~` folded where a word is too long."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=GREY)
    for name in columns:
        options = COLUMN_OPTIONS.get(name[:1], {})
        table.add_column(name[1:] if options else name, **options)
    for row in rows:
        table.add_row(*row)
    return table


def print_table(console: Console, table: "Table | PlainRows") -> None:
    """Print a table; without a terminal, without trailing blanks."""
    if console.is_terminal:
        console.print(table)
        return
    if isinstance(table, PlainRows):
        console.file.write("".join(f"{line}\n" for line in table.lines()))
        return
    with console.capture() as capture:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def print_pairs(console: Console, rows: Sequence[tuple[str, str | Text]], indent: int = 2) -> None:
    """Print one label and text per line; long text wraps in its own column."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=GREY, no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(" " * indent + label, text if isinstance(text, Text) else Text(text))
    print_table(console, table)


def status_text(run: "RunSummary") -> Text:
    """A run's status; a star where its held-out test reached the threshold."""
    if run.solved and run.status == "finished":
        return Text("★ solved", GREEN)
    colour = {"running": SKY, "failed": "red", "killed": "red", "interrupted": ORANGE}
    text = printable(run.status) + (" ★" if run.solved else "")
    return Text(text, colour.get(run.status, "none"))


def shorten_middle(text: str, width: int, tail: int = 11) -> str:
    """Cut out the middle, to at most `width` characters: run ids differ at the end (time, hex)."""
    if len(text) <= width:
        return text
    head = max(0, width - 1 - tail)
    return f"{text[:head]}…{text[-tail:]}"


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
