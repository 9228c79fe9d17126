"""Pages that stand alone: style, tables and line charts as SVG in one file, without scripts.

chart = line_chart([Line("val", [(0, 20.0), (1000, 180.0)], COLOURS[0])], level=475.0)
page = html_page("Title", [f"<h1>{escape(title)}</h1>", chart, html_table(heads, rows)])
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
Points = Sequence[tuple[float, float | None]]
WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 34
MOST_POINTS = 400  # per line; more are thinned, keeping the minimum and maximum of each bin


class Html(str):
    """Text that is HTML already; other text is escaped."""


def html_page(title: str, sections: Iterable[str], style: str = "") -> str:
    """A document of pieces of HTML; empty ones are left out. `style`: more rules."""
    body = "\n".join(filter(None, sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def html_text(value: object) -> str:
    return value if isinstance(value, Html) else escape(str(value))


def html_table(heads: Sequence[str] | None, rows: Iterable[Sequence[object]]) -> str:
    def row(values: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html_text(v)}</{tag}>" for v in values) + "</tr>"

    head = f"<thead>{row(heads, 'th')}</thead>" if heads else ""
    body = "".join(row(values, "td") for values in rows)
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def legend(keys: Sequence[tuple[str, str, float]]) -> str:
    """`keys`: (colour, label, opacity)."""
    return " ".join(
        f'<span class="key"><i style="background:{colour};opacity:{opacity}"></i>'
        f"{escape(label)}</span>"
        for colour, label, opacity in keys
    )


@dataclass(frozen=True)
class Line:
    label: str
    points: Points
    colour: str
    width: float = 2.0
    opacity: float = 1.0
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high) of an interval around the line
    marker: bool = False


def line_chart(
    lines: Sequence[Line],
    *,
    level: float | None = None,
    level_label: str = "",
    marks: Sequence[tuple[float, str]] = (),
    height: int = HEIGHT,
) -> str:
    """Curves over env steps as an SVG element; empty text if no line has a finite value. `marks`:
    vertical lines at x, with the text shown when the pointer is over them."""
    finite = [
        [(x, y) for x, y in one.points if y is not None and math.isfinite(y)] for one in lines
    ]
    drawn = [(line, points) for line, points in zip(lines, finite, strict=True) if points]
    if not drawn:
        return ""
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in drawn for _, y in points]
    ys += [y for line, _ in drawn for _, low, high in line.band for y in (low, high)]
    if level is not None:
        ys.append(level)
    scale = _Scale((min(0.0, *xs), max(xs)), (min(ys), max(ys)), height)
    parts = _axes(scale)
    for x, text in marks:
        if scale.x_low <= x <= scale.x_high:
            parts.append(
                f'<g class="alert"><title>{escape(text)}</title>{scale.vertical(x)}'
                f'<circle cx="{scale.x(x):.1f}" cy="{TOP + 4}" r="4"/></g>'
            )
    if level is not None:
        parts.append(scale.horizontal("level", level, f"<title>{escape(level_label)}</title>"))
    for line, points in drawn:
        parts += _line(scale, line, points)
    labels = escape(", ".join(line.label for line, _ in drawn))
    opening = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{labels}">'
    return f"{opening}{''.join(parts)}</svg>"


class _Scale:
    def __init__(self, xs: tuple[float, float], ys: tuple[float, float], height: int) -> None:
        (self.x_low, self.x_high), (low, high) = xs, ys
        if self.x_high <= self.x_low:
            self.x_high = self.x_low + 1.0
        room = 0.05 * (high - low) if high > low else abs(low) * 0.11 or 1.1
        self.y_low, self.y_high = low - room, high + room
        self.height = height

    def x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)

    def horizontal(self, kind: str, value: float, inside: str = "") -> str:
        y = f"{self.y(value):.1f}"
        right = WIDTH - RIGHT
        return f'<line class="{kind}" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}">{inside}</line>'

    def vertical(self, value: float) -> str:
        x = f"{self.x(value):.1f}"
        return f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{self.height - BOTTOM}"/>'

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


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


def _axes(scale: _Scale) -> list[str]:
    def text(x: float, y: float, anchor: str, shown: str) -> str:
        return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'

    bottom = scale.height - BOTTOM
    parts = [scale.horizontal("axis", scale.y_low)]
    for value in ticks(scale.y_low, scale.y_high, 5):
        parts.append(scale.horizontal("grid", value))
        parts.append(text(LEFT - 6, scale.y(value) + 3.5, "end", short_number(value)))
    for value in ticks(scale.x_low, scale.x_high, 6):
        parts.append(text(scale.x(value), bottom + 14, "middle", short_number(value)))
    return [*parts, text(WIDTH - RIGHT, bottom + 28, "end", "env steps")]


def _line(scale: _Scale, line: Line, points: list[tuple[float, float]]) -> list[str]:
    parts = []
    if line.band:
        edges = [(x, high) for x, _, high in line.band]
        edges += [(x, low) for x, low, _ in reversed(line.band)]
        parts.append(f'<polygon points="{scale.path(edges)}" fill="{line.colour}" opacity="0.15"/>')
    thin = _thinned(points)
    if len(thin) > 1:
        parts.append(
            f'<polyline points="{scale.path(thin)}" fill="none" stroke="{line.colour}" '
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
    return [*kept, points[-1]]
