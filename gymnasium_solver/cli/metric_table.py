"""The table of metrics: live in the dashboard, and at the end of a run."""

from collections.abc import Callable
from functools import partial

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.colours import GREEN, GREY, ORANGE, SKY
from gymnasium_solver.cli.live_state import BESTS, GROUPS, PLACES, SHOWN, Line, Span, State
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.words import ScoreText

GROUP, NAME, MARK, NUMBER = 7, 20, 2, 11  # widths of the columns
LONGEST_SPARK, SHORTEST_SPARK = 60, 8
ALERT_FROM, ALERT = 116, 28  # width from which alerts have a column of their own, and its width


def table_lines(state: State, width: int, room: int) -> list[Line]:
    """The heading and the rows that fit: chosen by priority, shown in groups."""
    known = [name for name in SHOWN if name in state.series][: max(0, room - 1)]
    if not known:
        return []
    spark = width - GROUP - NAME - MARK - 3 * NUMBER - 2
    with_alerts = width >= ALERT_FROM and bool(state.alerts) and not state.ended
    spark -= (ALERT + 2) * with_alerts
    spark = min(LONGEST_SPARK, spark) if spark >= SHORTEST_SPARK else 0
    numbers = ("last", "min", "max") if state.ended else ("now", "best", "change")
    head = f"{'':<{GROUP + NAME + MARK}}{''.join(f'{text:>{NUMBER}}' for text in numbers)}"
    over = "  over the run" if spark else ""
    head += f"{over:<{spark + 2}}{'  alert'}" if with_alerts else over
    lines: list[Line] = [[(head, GREY)]]
    group = ""
    for name in sorted(known, key=PLACES.__getitem__):
        title = GROUPS[describe(name).group]
        lines.append(_metric_row(state, name, title if title != group else "", spark, with_alerts))
        group = title
    return lines


def _metric_row(state: State, name: str, title: str, spark: int, with_alerts: bool) -> Line:
    alert = None if state.ended else state.alert_of(name)
    label = name.removeprefix(describe(name).group + "/")
    line: Line = [(f"{title:<{GROUP}}", "bold"), (f"{label:<{NAME}.{NAME}}", "none")]
    line.append((f"{'!' if alert else '':<{MARK}}", f"bold {ORANGE}"))
    line += _ended_numbers(state, name) if state.ended else _live_numbers(state, name)
    history = fmt.sparkline(state.series[name].values(), spark)
    line.append((f"  {history:<{spark}}", SKY))
    if with_alerts and alert is not None:
        line.append((f"  {alert.name}", ORANGE))
    return line


def _format(state: State, name: str) -> tuple[Callable[[float], str], int]:
    """How values of a metric are written, and with how many decimals."""
    if name in BESTS:
        score = ScoreText(state.threshold, state.best.get(name))
        return score, score.decimals
    precision = describe(name).precision
    return partial(fmt.number, precision=precision), precision


def _live_numbers(state: State, name: str) -> Line:
    series, best = state.series[name], state.best.get(name)
    shown, precision = _format(state, name)
    now = series.last
    assert now is not None  # a series is created with its first value
    at_best = best is not None and now == best and len(series.means) > 1
    star = "" if best is None else f"★ {shown(float(best))}"
    return [
        (f"{shown(float(now)):>{NUMBER}}", f"bold {GREEN}" if at_best else "bold"),
        (f"{star:>{NUMBER}}", ORANGE if at_best else GREY),
        _change(series.change(), now, precision, describe(name).better),
    ]


def _ended_numbers(state: State, name: str) -> Line:
    series, (shown, _) = state.series[name], _format(state, name)
    last = series.last
    assert last is not None
    return [
        (f"{shown(float(last)):>{NUMBER}}", "bold"),
        (f"{shown(series.low):>{NUMBER}}", "none"),
        (f"{shown(series.high):>{NUMBER}}", "none"),
    ]


def _change(change: float | None, now: float, precision: int, better: str | None) -> Span:
    if change is None:
        return (" " * NUMBER, "none")
    smallest = 0.5 * 10**-precision
    if abs(change) < smallest <= abs(now):  # nothing that the value beside it would show
        change = 0.0
    text = fmt.signed(change, precision)
    good = better is not None and text != "·" and (change > 0) == (better == "up")
    bad = better is not None and text != "·" and not good
    return (f"{text:>{NUMBER}}", GREEN if good else ORANGE if bad else GREY)
