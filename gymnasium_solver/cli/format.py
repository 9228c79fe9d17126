"""Formats numbers, durations and histories for the terminal. Plain Python, no rich."""

import math
from collections.abc import Sequence
from itertools import pairwise

TICKS = "▁▂▃▄▅▆▇"  # no full block: bars of neighbouring rows would merge


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
    """The history of a value as at most `width` bars, scaled from its minimum to its maximum."""
    shown = resample(values, width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return TICKS[0] * len(shown)
    scale = (len(TICKS) - 1) / (high - low)
    return "".join(TICKS[round((value - low) * scale)] for value in shown)


def resample(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values over the same span: means over equal intervals."""
    n = len(values)
    if not n or width < 1:
        return []
    width = min(width, n)
    cuts = [i * n // width for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]


def file_size(n_bytes: int) -> str:
    """812 B, 3.4 MB."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
