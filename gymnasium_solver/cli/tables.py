"""Printing for verbs that read: one console, one plain table style, JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli.colours import GREEN, ORANGE, SKY
from gymnasium_solver.cli.plain_rows import Cell, PlainRows
from gymnasium_solver.printable import escaped, printable, printable_lines
from gymnasium_solver.runs.files import jsonable

if TYPE_CHECKING:
    from gymnasium_solver.runs.query import RunSummary

PIPED_WIDTH = 160  # without a terminal, do not wrap at 80 columns


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


def make_console(stderr: bool = False) -> Console:
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


def plain_table(*columns: str | tuple[str, Mapping[str, Any]]) -> Table:
    """A table without borders: columns are names, or (name, options of rich's add_column)."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bright_black")
    for column in columns:
        name, options = (column, {}) if isinstance(column, str) else column
        table.add_column(name, **options)
    return table


def print_table(console: Console, table: Table | PlainRows) -> None:
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
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(" " * indent + label, text if isinstance(text, Text) else Text(text))
    print_table(console, table)


def status_text(run: "RunSummary") -> Text:
    """A run's status; a star where its held-out test reached the threshold."""
    cell = status_cell(run)
    return Text(cell.text, style=cell.style)


def status_cell(run: "RunSummary") -> Cell:
    """The same as a cell of a table."""
    if run.solved and run.status == "finished":
        return Cell("★ solved", GREEN)
    colour = {"running": SKY, "failed": "red", "killed": "red", "interrupted": ORANGE}
    text = printable(run.status) + (" ★" if run.solved else "")
    return Cell(text, colour.get(run.status, "none"))


def shorten_middle(text: str, width: int, tail: int = 11) -> str:
    """Cut out the middle, to at most `width` characters: run ids differ at the end (time, hex)."""
    if len(text) <= width:
        return text
    head = max(0, width - 1 - tail)
    return f"{text[:head]}…{text[-tail:]}"
