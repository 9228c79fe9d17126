"""The live dashboard of `gsolve train`: a pure function from a state to lines.

The lines are built by hand and passed to rich as segments: laying out rich tables takes 15-30 ms
per refresh, this takes well under 1 ms. The dashboard must cost less than 1 % of the run.

It fits the height of the terminal: first come progress, requests and the newest messages, then as
many rows of the table as there is room for, by the priority of the metrics, then blank lines.
"""

import textwrap
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.live_state import BESTS, GROUPS, PLACES, SHOWN, Line, Span, State
from gymnasium_solver.cli.output import BLUE, GREEN, GREY, ORANGE, PINK, SKY
from gymnasium_solver.runs.metrics import describe, own_metrics
from gymnasium_solver.runs.words import ScoreText

WIDEST = 160
LABEL = 8  # width of the labels on the left: env, agent, now, time
LONGEST_MESSAGE = 3  # lines
SHARES = (("env", BLUE), ("act", SKY), ("update", ORANGE), ("eval", PINK))
DOT = " · "
GROUP, NAME, MARK, NUMBER = 7, 20, 2, 11  # widths of the columns
LONGEST_SPARK, SHORTEST_SPARK = 60, 8
ALL_NUMBERS_FROM = 100  # width from which mean and deviation are shown at the end
ALERT_FROM, ALERT = 116, 28  # width from which alerts have a column of their own, and its width


class Dashboard:
    """A rich renderable of a `State`."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        # The last line stays free: a terminal scrolls when something is printed below it.
        height = None if self.state.ended else console.size.height - 1
        for line in frame(self.state, min(options.max_width, WIDEST), height):
            for text, style in line:
                yield Segment(text, _style(style))
            yield Segment.line()


@lru_cache(maxsize=64)
def _style(name: str) -> Style:
    return Style.parse(name)


def frame(state: State, width: int, height: int | None = None) -> list[Line]:
    """All lines, inside a border, exactly `width` wide and at most `height` high."""
    inner = width - 4
    room = most = 10_000 if height is None else max(0, height - 2)
    headers = state.header if room >= 16 else state.header[:1] if room >= 10 else []
    head = [
        _parts(key, [(t, out.linked("none", t)) for t in parts], inner) for key, parts in headers
    ]
    progress = _progress(state, inner, room)
    bottom = _bottom(state, inner, room)
    room -= len(head) + len(progress) + len(bottom)
    table = table_lines(state, inner, room)
    # Blank lines while there is room; where one helps most comes first.
    apart = [id(block) for block in (table, bottom, progress)][: max(0, room - len(table))]
    lines: list[Line] = []
    for block in (head, progress, table, bottom):
        lines += [[]] if lines and block and id(block) in apart else []
        lines += block
    body: list[Line] = [[("│ ", GREY), *_fit(line, inner), (" │", GREY)] for line in lines[:most]]
    return [_top_edge(state, width), *body, _bottom_edge(state, width)]


def _top_edge(state: State, width: int) -> Line:
    name, run_id = f" {state.name} ", f" {state.run_id} "
    rule = width - 4 - cell_len(name) - cell_len(run_id)
    if rule < 1:
        run_id, rule = "", max(0, width - 4 - cell_len(name))
    line = _fit(
        [(name, "bold"), ("─" * rule, GREY), (run_id, out.linked(SKY, state.folder_url))], width - 4
    )
    return [("╭─", GREY), *line, ("─╮", GREY)]


def _bottom_edge(state: State, width: int) -> Line:
    """The border, with the keys in it."""
    if state.ended or not state.key_help or width < 24:
        return [("╰" + "─" * (width - 2) + "╯", GREY)]
    keys: Line = [(" ", GREY)]
    for key, text in state.key_help:
        added: Line = [(key, f"bold {SKY}"), (f" {text.partition(':')[0]} ", GREY)]
        dot: Line = [("· ", GREY)] if len(keys) > 1 else []
        if _length([*keys, *dot, *added]) > width - 4:
            break
        keys += [*dot, *added]
    return [("╰─", GREY), *keys, ("─" * (width - 3 - _length(keys)) + "╯", GREY)]


def _length(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def _fit(line: Line, width: int) -> Line:
    """Cut or pad the line to `width` cells."""
    fitted: Line = []
    left = width
    for text, style in line:
        size = cell_len(text)
        if size > left:
            fitted.append((set_cell_size(text, max(0, left - 1)) + "…" * (left > 0), style))
            return fitted
        fitted.append((text, style))
        left -= size
    return [*fitted, (" " * left, "none")]


def _parts(label: str, parts: Sequence[Span], width: int) -> Line:
    """A label and as many whole parts as fit; the first one is always there."""
    line: Line = [(f"{label:<{LABEL}}", GREY)]
    for i, part in enumerate(parts):
        added: Line = [(DOT, GREY), part] if i else [part]
        if i and _length([*line, *added]) > width:
            break
        line += added
    return line


# --- progress


def _progress(state: State, width: int, room: int) -> list[Line]:
    fraction, bar = state.fraction(), max(0, width - 8)
    done = round(fraction * bar)
    total = f" / {out.number(state.max_env_steps)}" if state.max_env_steps else ""
    # With an env step budget the number of epochs is an estimate, which may be exceeded.
    epochs = "" if state.max_env_steps else f" / {out.number(state.planned_epochs)}"
    took, left_s, speed = out.duration(state.wall_s()), state.remaining_s(), state.steps_per_s()
    steps: list[Span] = [  # least important last: a narrow terminal leaves it out
        (f"{out.number(state.env_steps)}{total}", "bold"),
        ("" if state.ended or left_s is None else f"{out.duration(left_s)} left", "bold"),
        (f"ended after {took}" if state.ended else f"{took} so far", "none"),
        ("" if speed is None else out.steps_per_second(speed), "none"),
        (f"epoch {out.number(state.epoch())}{epochs}", "none"),
    ]
    lines: list[Line] = [
        [("━" * done, GREEN), ("━" * (bar - done), GREY), (f" {100 * fraction:5.1f} %", "bold")],
        _parts("steps", [span for span in steps if span[0]], width),
    ]
    if not state.ended:
        style = ORANGE if state.activity.is_paused else "none"
        lines.append(_parts("now", [(part, style) for part in state.doing()], width))
    for i, text in enumerate(state.requests()):
        lines.append([(f"{'' if i else 'then':<{LABEL}}", GREY), (text, ORANGE)])
    return lines + (_time_shares(state, width) if room >= 16 else [])


def _time_shares(state: State, width: int) -> list[Line]:
    """Time by section: one bar in four colours and its legend."""
    known = [
        (label, colour, share)
        for label, colour in SHARES
        if (share := state.row.get(f"train/sys/timing/{label}_share")) is not None
    ]
    if not known:
        return []
    legend: Line = []
    for label, colour, share in known:
        legend += [("  ■ ", colour), (f"{label} {100 * share:.0f} %", "none")]
    length = max(8, min(28, width - LABEL - _length(legend)))
    bar: Line = [("█" * round(share * length), colour) for _, colour, share in known]
    rest = ("░" * max(0, length - _length(bar)), GREY)
    return [[(f"{'time':<{LABEL}}", GREY), *bar, rest, *legend]]


# --- the table of metrics, here and at the end of a run


def table_lines(state: State, width: int, room: int) -> list[Line]:
    """The heading and the rows that fit: chosen by priority, shown in groups."""
    wanted = (*SHOWN[:4], *own_metrics(state.series), *SHOWN[4:])
    known = [name for name in wanted if name in state.series][: max(0, room - 1)]
    if not known:
        return []
    numbers: tuple[str, ...] = ("now", "best", "change")
    if state.ended:
        numbers = ("last", "min", "max", "mean", "std")[: 5 if width >= ALL_NUMBERS_FROM else 3]
    spark = width - GROUP - NAME - MARK - len(numbers) * NUMBER - 2
    with_alerts = width >= ALERT_FROM and bool(state.alerts) and not state.ended
    spark -= (ALERT + 2) * with_alerts
    spark = min(LONGEST_SPARK, spark) if spark >= SHORTEST_SPARK else 0
    head = f"{'':<{GROUP + NAME + MARK}}{''.join(f'{text:>{NUMBER}}' for text in numbers)}"
    over = "  over the run" if spark else ""
    head += f"{over:<{spark + 2}}{'  alert'}" if with_alerts else over
    lines: list[Line] = [[(head, GREY)]]
    group = ""
    for name in sorted(known, key=lambda name: PLACES.get(name, (len(GROUPS), 0))):
        title = GROUPS[describe(name).group]
        active = [alert for alert in state.alerts.values() if alert.metric == name]
        alert = active[0] if active and not state.ended else None
        label = name.removeprefix(describe(name).group + "/")
        lines.append(
            [
                (f"{title if title != group else '':<{GROUP}}", "bold"),
                (f"{label:<{NAME}.{NAME}}", "none"),
                (f"{'!' if alert else '':<{MARK}}", f"bold {ORANGE}"),
                *_numbers_of(state, name, len(numbers)),
                (f"  {out.sparkline(state.series[name].values(), spark):<{spark}}", SKY),
                (f"  {alert.name}" if with_alerts and alert is not None else "", ORANGE),
            ]
        )
        group = title
    return lines


def _numbers_of(state: State, name: str, most: int) -> Line:
    """The numbers of a metric; after the end the last, the lowest and the highest, and where there
    is room the mean and the standard deviation over the run."""
    series, best, metric = state.series[name], state.best.get(name), describe(name)
    score, decimals = ScoreText(state.threshold, best), metric.precision
    if name in BESTS:
        decimals = score.decimals

    def shown(value: float) -> str:
        return score(float(value)) if name in BESTS else out.number(float(value), decimals)

    now = series.last
    assert now is not None  # a series is created with its first value
    if state.ended:
        values = (now, series.low, series.high, series.mean, series.std)[:most]
        styles = ("bold", *["none"] * (most - 1))
        return [(f"{shown(v):>{NUMBER}}", s) for v, s in zip(values, styles, strict=True)]
    at_best = best is not None and now == best and len(series.means) > 1
    star = "" if best is None else f"★ {shown(best)}"
    return [
        (f"{shown(now):>{NUMBER}}", f"bold {GREEN}" if at_best else "bold"),
        (f"{star:>{NUMBER}}", ORANGE if at_best else GREY),
        _change(series.change(), now, decimals, metric.better),
    ]


def _change(change: float | None, now: float, precision: int, better: str | None) -> Span:
    if change is None:
        return (" " * NUMBER, "none")
    smallest = 0.5 * 10**-precision
    if abs(change) < smallest <= abs(now):  # nothing that the value next to it would show
        change = 0.0
    text = out.signed(change, precision)
    good = better is not None and text != "·" and (change > 0) == (better == "up")
    bad = better is not None and text != "·" and not good
    return (f"{text:>{NUMBER}}", GREEN if good else ORANGE if bad else GREY)


# --- messages


def _bottom(state: State, width: int, room: int) -> list[Line]:
    """The help, or the newest messages."""
    if state.ended:
        return []
    if state.show_help:
        keys = [*state.key_help, ("Ctrl-C", "save and stop; twice: stop at once")]
        return [[(f"{key:<{LABEL}}", f"bold {SKY}"), (text, "none")] for key, text in keys]
    most = 1 if room < 14 else 3 if room < 26 else 5 if room < 40 else 8
    lines: list[Line] = []
    for message in reversed(state.messages):
        wrapped = _wrapped(message, width)
        if lines and len(lines) + len(wrapped) > most:
            break
        lines = [*wrapped, *lines]
    return lines


def _wrapped(message: Line, width: int) -> list[Line]:
    """A message of a time and a text that is too long, in at most `LONGEST_MESSAGE` lines."""
    if _length(message) <= width or len(message) != 2:
        return [message]
    (when, grey), (text, style) = message
    indent = cell_len(when)
    first, *rest = textwrap.wrap(text, max(20, width - indent)) or [""]
    rest = rest[: LONGEST_MESSAGE - 1]
    return [[(when, grey), (first, style)], *([(" " * indent + part, style)] for part in rest)]
