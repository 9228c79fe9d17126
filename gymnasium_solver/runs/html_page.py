"""Pages that stand alone: style, tables and line charts as SVG in one file, without scripts.

chart = line_chart([Line("val", [(0, 20.0), (1000, 180.0)], COLOURS[0])], level=475.0)
page = html_page("Title", [f"<h1>{escape(title)}</h1>", chart, html_table(heads, rows)])
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1b; --quiet: #5c6370; --line: #d8dbe0;
  --grid: #eceef1; --soft: #f5f6f8; --good: #00714f; --bad: #a83f00; --alert: #b3005e; }
@media (prefers-color-scheme: dark) { :root { --back: #15171b; --text: #e6e8eb; --quiet: #9aa3b0;
  --line: #353a43; --grid: #262a31; --soft: #1d2026; --good: #35c796; --bad: #ff9a5c;
  --alert: #ff7ab8; } }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 24px 16px 60px; }
h1 { font-size: 1.6rem; margin: 0 0 4px; } h2 { font-size: 1.15rem; margin: 34px 0 8px; }
p { margin: 6px 0; } code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: 10px 12px; overflow-x: auto; border-radius: 6px; }
.quiet { color: var(--quiet); }
.badge { font-size: .85rem; padding: 2px 10px; border-radius: 99px; border: 1px solid;
  vertical-align: middle; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .plain { color: var(--quiet); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 3px 18px 3px 0; text-align: left; border-bottom: 1px solid var(--grid);
  vertical-align: top; } th { color: var(--quiet); font-weight: 500; }
figure { margin: 8px 0; } figcaption { font-size: .85rem; color: var(--quiet); }
svg { width: 100%; height: auto; display: block; } video, figure img { max-width: 100%; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr));
  gap: 8px 20px; }
.tick { font: 11px system-ui, sans-serif; fill: var(--quiet); } .panels .tick { font-size: 17px; }
.grid { stroke: var(--grid); } .axis { stroke: var(--line); }
.level { stroke: var(--quiet); stroke-dasharray: 6 5; stroke-width: 1.4; }
.alert line { stroke: var(--alert); stroke-dasharray: 2 4; } .alert circle { fill: var(--alert); }
.alert-box { border-left: 4px solid var(--alert); padding: 2px 0 2px 12px; margin: 10px 0; }
.key { margin-right: 14px; white-space: nowrap; } .key i { display: inline-block; width: 16px;
  height: 4px; margin-right: 6px; vertical-align: middle; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: 8px; }
.bar { display: grid; grid-template-columns: 90px 1fr 50px; align-items: center; gap: 8px;
  max-width: 560px; font-size: .9rem; margin-top: 4px; }
.bar i { height: 10px; background: #0072b2; border-radius: 3px; } .bar b { font-weight: 500; }
"""

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


# -- charts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    label: str
    points: Points
    colour: str
    width: float = 2.0
    opacity: float = 1.0
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of an interval around the line."""
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
    drawn = [(line, _finite(line.points)) for line in lines]
    drawn = [(line, points) for line, points in drawn if points]
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
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{labels}">'
        f"{''.join(parts)}</svg>"
    )


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
    return [*kept, points[-1]]
