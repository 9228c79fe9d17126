"""Line charts as SVG text, for pages that stand alone: no matplotlib, no script.

    svg = line_chart([Line("val", [(0, 20.0), (1000, 180.0)], COLOURS[0])], level=475.0)

Colours of axes and text come from the page's style sheet (classes axis, grid, tick, level).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

Points = Sequence[tuple[float, float | None]]
WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 34
MOST_POINTS = 400  # per line; more are thinned, keeping the minimum and maximum of each bin


@dataclass(frozen=True)
class Line:
    label: str
    points: Points
    colour: str
    width: float = 2.0
    opacity: float = 1.0
    spread: dict[float, float] = field(default_factory=dict)
    """Half the height of the band around the line, by x."""
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of an interval around the line."""
    marker: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical line at x, with the text shown when the pointer is over it."""

    x: float
    text: str


def line_chart(
    lines: Sequence[Line],
    *,
    level: float | None = None,
    level_label: str = "",
    marks: Sequence[Mark] = (),
    height: int = HEIGHT,
    x_label: str = "env steps",
) -> str:
    """An SVG element; empty text if no line has a finite value."""
    drawn = [(line, _finite(line.points)) for line in lines]
    drawn = [(line, points) for line, points in drawn if points]
    if not drawn:
        return ""
    xs = [x for _, points in drawn for x, _ in points]
    ys = [
        y + sign * line.spread.get(x, 0.0) for line, points in drawn for x, y in points
        for sign in (-1, 1)
    ]  # fmt: skip
    ys += [y for line, _ in drawn for _, low, high in line.band for y in (low, high)]
    if level is not None:
        ys.append(level)
    scale = _Scale(min(0.0, min(xs)), max(xs), min(ys), max(ys), height)
    parts = [*_axes(scale, x_label)]
    parts += [_mark(scale, mark) for mark in marks if scale.x_low <= mark.x <= scale.x_high]
    if level is not None:
        y = scale.y(level)
        parts.append(
            f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
            f"<title>{escape(level_label)}</title></line>"
        )
    for line, points in drawn:
        parts += _line(scale, line, points)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(", ".join(line.label for line, _ in drawn))}">{"".join(parts)}</svg>'
    )


class _Scale:
    def __init__(self, x_low: float, x_high: float, y_low: float, y_high: float, height: int):
        if x_high <= x_low:
            x_high = x_low + 1.0
        if y_high <= y_low:
            room = abs(y_low) * 0.1 or 1.0
            y_low, y_high = y_low - room, y_high + room
        room = 0.05 * (y_high - y_low)
        self.x_low, self.x_high = x_low, x_high
        self.y_low, self.y_high = y_low - room, y_high + room
        self.height = height

    def x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)


def ticks(low: float, high: float, n: int) -> list[float]:
    """Round values between low and high, about `n` of them."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10 ** math.floor(math.log10(span / n))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= n)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def short_number(value: float) -> str:
    """1500000 -> 1.5M, 0.0003 -> 0.0003."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _axes(scale: _Scale, x_label: str) -> list[str]:
    bottom = scale.height - BOTTOM
    parts = []
    for value in ticks(scale.y_low, scale.y_high, 5):
        y = scale.y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">'
            f"{short_number(value)}</text>"
        )
    for value in ticks(scale.x_low, scale.x_high, 6):
        x = scale.x(value)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">'
            f"{short_number(value)}</text>"
        )
    parts.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{bottom + 28}" text-anchor="end">'
        f"{escape(x_label)}</text>"
    )
    return parts


def _mark(scale: _Scale, mark: Mark) -> str:
    x, bottom = scale.x(mark.x), scale.height - BOTTOM
    return (
        f'<g class="alert"><title>{escape(mark.text)}</title>'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        f'<circle cx="{x:.1f}" cy="{TOP + 4}" r="4"/></g>'
    )


def _line(scale: _Scale, line: Line, points: list[tuple[float, float]]) -> list[str]:
    parts = []
    if line.spread:
        upper = [(x, y + line.spread.get(x, 0.0)) for x, y in points]
        lower = [(x, y - line.spread.get(x, 0.0)) for x, y in reversed(points)]
        parts.append(
            f'<polygon points="{_path(scale, [*upper, *lower])}" fill="{line.colour}" '
            'opacity="0.14"/>'
        )
    if line.band:
        edges = [(x, high) for x, _, high in line.band]
        edges += [(x, low) for x, low, _ in reversed(line.band)]
        parts.append(
            f'<polygon points="{_path(scale, edges)}" fill="{line.colour}" opacity="0.16"/>'
        )
    thin = _thinned(points)
    if len(thin) > 1:
        parts.append(
            f'<polyline points="{_path(scale, thin)}" fill="none" stroke="{line.colour}" '
            f'stroke-width="{line.width}" stroke-opacity="{line.opacity}" '
            'stroke-linejoin="round"/>'
        )
    if line.marker or len(thin) == 1:
        parts += [
            f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="3" fill="{line.colour}">'
            f"<title>{escape(line.label)} {y:.6g} at {x:,.0f}</title></circle>"
            for x, y in thin
        ]
    return parts


def _path(scale: _Scale, points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)


def _finite(points: Points) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most about MOST_POINTS points: of each bin the lowest and the highest, in order."""
    if len(points) <= MOST_POINTS:
        return points
    size = -(-len(points) // (MOST_POINTS // 2))
    kept = [points[0]]
    for start in range(0, len(points), size):
        part = points[start : start + size]
        low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
        kept += [low] if low == high else sorted((low, high))
    kept.append(points[-1])
    return kept
