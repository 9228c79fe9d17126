"""A table of one line per row, for thousands of rows.

rich's Table measures and wraps every cell, which takes most of a millisecond a row. Here widths are
computed once and lines are written as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

GAP = "  "


@dataclass(frozen=True)
class Cell:
    text: str
    style: str = "none"


@dataclass
class Column:
    name: str
    cells: list[Cell] = field(default_factory=list)
    is_right: bool = False

    @property
    def width(self) -> int:
        return max(cell_len(self.name), *(cell_len(cell.text) for cell in self.cells), 0)


class PlainRows:
    """Columns of cells under grey heads; numbers are aligned to the right."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns) + len(GAP) * (len(self.columns) - 1)

    def lines(self) -> Iterator[str]:
        """Without colours and trailing blanks."""
        heads = [Cell(column.name) for column in self.columns]
        for row in (heads, *zip(*(column.cells for column in self.columns), strict=True)):
            yield GAP.join(text for text, _ in self._padded(row)).rstrip()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        styles = {cell.style for column in self.columns for cell in column.cells}
        known = {style: console.get_style(style) for style in (*styles, "bright_black")}
        heads = [Cell(column.name, "bright_black") for column in self.columns]
        for row in (heads, *zip(*(column.cells for column in self.columns), strict=True)):
            yield from self._line(row, known)

    def _line(self, row: Sequence[Cell], styles: dict[str, Style]) -> Iterator[Segment]:
        for i, (text, style) in enumerate(self._padded(row)):
            yield Segment(GAP + text if i else text, styles[style] if style != "none" else None)
        yield Segment.line()

    def _padded(self, row: Sequence[Cell]) -> Iterator[tuple[str, str]]:
        for cell, (width, is_right) in zip(row, self._widths(), strict=True):
            blanks = " " * (width - cell_len(cell.text))
            yield (blanks + cell.text if is_right else cell.text + blanks), cell.style

    def _widths(self) -> list[tuple[int, bool]]:
        if not hasattr(self, "_known_widths"):
            self._known_widths = [(column.width, column.is_right) for column in self.columns]
        return self._known_widths
