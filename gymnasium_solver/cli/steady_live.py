"""rich's Live without flicker, for a display whose lines all have the same width.

rich erases every line before it writes the new ones, which is seen as flicker on a slow terminal or
connection. Here a refresh overwrites the old lines, and erases only the lines that are left over if
the display became shorter. Something printed above the display still erases it first.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment


class SteadyRender(LiveRender):
    erases = True
    """Whether old lines are erased first, as by rich."""

    def position_cursor(self) -> Control:
        if self.erases or self._shape is None:
            return super().position_cursor()
        up = self._shape[1] - 1
        return Control(ControlType.CARRIAGE_RETURN, *([(ControlType.CURSOR_UP, up)] if up else []))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterable[RenderableType | Segment]:
        before = self._shape
        yield from super().__rich_console__(console, options)
        if self.erases or before is None or self._shape is None:
            return
        left_over = before[1] - self._shape[1]
        if left_over > 0:
            erase = (ControlType.ERASE_IN_LINE, 2)
            for _ in range(left_over):
                yield Segment.line()
                yield Control(erase).segment
            yield Control((ControlType.CURSOR_UP, left_over)).segment


class SteadyLive(Live):
    def __init__(self, renderable: RenderableType, **options: Any) -> None:
        super().__init__(renderable, auto_refresh=False, vertical_overflow="crop", **options)
        self._live_render: SteadyRender = SteadyRender(
            self.get_renderable(), vertical_overflow=self.vertical_overflow
        )
        self._width = 0

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        width = self.console.width
        is_refresh = all(isinstance(renderable, Control) for renderable in renderables)
        self._live_render.erases = not is_refresh or width != self._width
        self._width = width
        return super().process_renderables(renderables)
