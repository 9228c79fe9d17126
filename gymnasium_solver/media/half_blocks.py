"""Pictures in a terminal: each character is two pixels, one above the other."""

from functools import lru_cache

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

HALF = "▀"  # its foreground is the upper pixel, its background the lower one


class HalfBlocks:
    """A picture in at most `columns` x `rows` characters, for rich to print."""

    def __init__(self, frame: np.ndarray, columns: int, rows: int) -> None:
        self.pixels = shrink(frame, columns, 2 * rows)

    @property
    def height(self) -> int:
        """In characters."""
        return len(self.pixels) // 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for y in range(0, len(self.pixels) - 1, 2):
            row = np.concatenate([self.pixels[y], self.pixels[y + 1]], axis=1)
            changes = np.flatnonzero((row[1:] != row[:-1]).any(axis=1)) + 1
            starts = [0, *changes.tolist()]
            for start, end in zip(starts, [*starts[1:], len(row)], strict=True):
                yield Segment(HALF * (end - start), _style(*row[start].tolist()))
            yield Segment.line()


@lru_cache(maxsize=1 << 15)
def _style(r: int, g: int, b: int, r2: int, g2: int, b2: int) -> Style:
    return Style(color=Color.from_rgb(r, g, b), bgcolor=Color.from_rgb(r2, g2, b2))


def shrink(frame: np.ndarray, width: int, height: int) -> np.ndarray:
    """Area means with the frame's aspect ratio, no larger than width x height."""
    scale = max(frame.shape[1] / width, frame.shape[0] / height, 1.0)
    wide, high = max(1, int(frame.shape[1] / scale)), max(2, int(frame.shape[0] / scale))
    y_cuts = np.linspace(0, frame.shape[0], high + 1).astype(int)[:-1]
    x_cuts = np.linspace(0, frame.shape[1], wide + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(frame.astype(np.int64), y_cuts, 0), x_cuts, 1)
    areas = np.outer(np.diff([*y_cuts, frame.shape[0]]), np.diff([*x_cuts, frame.shape[1]]))
    return (sums / areas[..., None]).astype(np.uint8)
