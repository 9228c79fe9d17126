"""Drawing with pygame: text, bars, plots and pictures in rectangles of a surface."""

import io
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gymnasium_solver.errors import MissingError
from gymnasium_solver.media.drawing import font as pillow_font

BACKGROUND, PANEL, LINE = (22, 24, 29), (31, 34, 41), (58, 63, 74)
TEXT, FAINT = (232, 234, 238), (142, 149, 161)
# Okabe and Ito's palette, brightened for a dark ground
BLUE, ORANGE, GREEN, PINK = (86, 180, 233), (230, 159, 0), (60, 190, 140), (216, 140, 180)
SMALL, NORMAL, LARGE = 13, 15, 20
Rect = tuple[int, int, int, int]
"""Left, top, width, height."""
Colour = tuple[int, int, int]


def import_pygame() -> Any:
    """pygame, without its greeting; MissingError if it is not installed."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise MissingError(
            'a window needs pygame: pip install "gymnasium-solver[play]", or play in the terminal '
            "with --text."
        ) from None
    return pygame


class Canvas:
    """A surface to draw on. Rectangles are (left, top, width, height)."""

    def __init__(self, surface: Any) -> None:
        self.pygame = import_pygame()
        self.surface = surface

    @property
    def size(self) -> tuple[int, int]:
        return self.surface.get_size()

    def clear(self) -> None:
        self.surface.fill(BACKGROUND)

    def panel(self, rect: Rect, title: str = "") -> Rect:
        """A titled box; what is left inside it."""
        self.pygame.draw.rect(self.surface, PANEL, rect, border_radius=6)
        left, top, width, height = rect
        if title:
            self.text(title, (left + 10, top + 7), SMALL, FAINT, width=width - 20)
        head = 28 if title else 8
        return left + 10, top + head, width - 20, height - head - 8

    def text(
        self,
        text: str,
        place: tuple[float, float],
        size: int = NORMAL,
        colour: Colour = TEXT,
        align: str = "left",
        width: float | None = None,
    ) -> int:
        """Write one line, cut to `width`; its width in pixels."""
        drawn = _written(text, size, colour, None if width is None else int(width))
        left = place[0] - {"left": 0.0, "right": 1.0, "centre": 0.5}[align] * drawn.get_width()
        self.surface.blit(drawn, (round(left), round(place[1])))
        return int(drawn.get_width())

    def bar(
        self,
        rect: tuple[float, float, float, float],
        share: float,
        zero: float = 0.0,
        colour: Colour = BLUE,
    ) -> None:
        """A horizontal bar from `zero` to `share`, both in [0, 1] of the width."""
        left, top, width, height = rect
        self.pygame.draw.rect(self.surface, LINE, (left, top, width, height), border_radius=2)
        share = min(max(share, 0.0), 1.0)
        a, b = sorted((left + width * zero, left + width * share))
        filled = (round(a), round(top), max(2, round(b - a)), round(height))
        self.pygame.draw.rect(self.surface, colour, filled, border_radius=2)

    def mark(self, x: float, top: float, height: float, colour: Colour) -> None:
        self.pygame.draw.rect(self.surface, colour, (round(x) - 1, round(top), 3, round(height)))

    def plot(
        self,
        rect: Rect,
        series: Sequence[tuple[Sequence[float | None], Colour]],
        is_steps: bool = False,
    ) -> None:
        """Lines over the steps on a common scale; `is_steps`: vertical strokes from 0."""
        known = [value for line, _ in series for value in line if value is not None]
        if not known:
            return
        low, high = min(known), max(known)
        if is_steps:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low < 1e-9:
            low, high = low - 1.0, high + 1.0
        left, top, width, height = rect
        inner = (left + 54, top + 2, width - 58, height - 8)
        for value, y in ((high, inner[1]), (low, inner[1] + inner[3])):
            self.pygame.draw.line(self.surface, LINE, (inner[0], y), (inner[0] + inner[2], y))
            self.text(f"{value:.4g}", (left + 48, y - 8), SMALL, FAINT, "right")
        for line, colour in series:
            self._line(inner, line, (low, high), colour, is_steps)

    def _line(
        self,
        inner: Rect,
        line: Sequence[float | None],
        scale: tuple[float, float],
        colour: Colour,
        is_steps: bool,
    ) -> None:
        left, top, width, height = inner
        low, high = scale
        n = max(2, len(line))
        stride = max(1, len(line) // (2 * width))
        points = [
            (left + width * i / (n - 1), top + height * (high - value) / (high - low))
            for i, value in enumerate(line)
            if value is not None and i % stride == 0
        ]
        if is_steps:
            ground = top + height * high / (high - low)
            for x, y in points:
                if y != ground:
                    self.pygame.draw.line(self.surface, colour, (x, ground), (x, y))
        elif len(points) > 1:
            self.pygame.draw.aalines(self.surface, colour, False, points)

    def picture(self, rect: Rect, frame: np.ndarray) -> None:
        """A frame, as large as fits, in the middle of the rectangle."""
        left, top, width, height = rect
        scale = min(width / frame.shape[1], height / frame.shape[0])
        if scale >= 2:
            scale = float(int(scale))
        size = max(1, int(frame.shape[1] * scale)), max(1, int(frame.shape[0] * scale))
        image = self.pygame.image.frombuffer(
            np.ascontiguousarray(frame).tobytes(), (frame.shape[1], frame.shape[0]), "RGB"
        )
        how = self.pygame.transform
        image = how.scale(image, size) if scale >= 2 else how.smoothscale(image, size)
        self.surface.blit(image, (left + (width - size[0]) // 2, top + (height - size[1]) // 2))


@lru_cache(maxsize=64)
def _font(size: int) -> Any:
    """Pillow's font, as in videos."""
    letters = pillow_font(size)
    body = getattr(letters, "path", None)
    if isinstance(body, io.BytesIO):
        return import_pygame().font.Font(io.BytesIO(body.getvalue()), size)
    return import_pygame().font.Font(None, size + 4)


@lru_cache(maxsize=4096)
def _written(text: str, size: int, colour: Colour, width: int | None) -> Any:
    font = _font(size)
    if width is not None and font.size(text)[0] > width:
        while text and font.size(f"{text}…")[0] > width:
            text = text[:-1]
        text = f"{text}…"
    return font.render(text, True, colour)
