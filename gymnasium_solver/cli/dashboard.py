"""The live dashboard of `gsolve train`: a pure function from a state to lines.

The lines are built by hand and passed to rich as segments: laying out rich tables takes 15-30 ms
per refresh, this takes well under 1 ms. The dashboard must cost less than 1 % of the run.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.runs.metrics import METRICS, describe
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from gymnasium_solver.training.observer import EvalResult

Span = tuple[str, str]  # text, style
Line = list[Span]

WIDEST = 98
SPARK = 28
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
SHARES = (("env", BLUE), ("act", SKY), ("update", ORANGE), ("eval", PINK))
HIDDEN = ("best", "std")  # shown in other columns or elsewhere


def _shown(*groups: str) -> tuple[str, ...]:
    return tuple(
        name
        for name, metric in METRICS.items()
        if metric.show and metric.group in groups and name.rpartition("/")[2] not in HIDDEN
    )


TRAIN = _shown("train/roll", "train/opt", "train/hp")
VAL = _shown("val/roll")
BESTS = {name for name in (*TRAIN, *VAL) if "/ep_rew/" in name}


@dataclass
class State:
    """What is known about the run so far."""

    run_id: str
    name: str
    header: list[tuple[str, str]]
    max_env_steps: int | None
    planned_epochs: int | None
    row: dict[str, Any] = field(default_factory=dict)
    series: dict[str, fmt.Series] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    messages: deque[Line] = field(default_factory=lambda: deque(maxlen=4))
    start_steps: int = 0
    """Env steps at which this process started; above 0 after a resume."""
    threshold: float | None = None
    start_fraction: float = 0.0
    started_s: float = field(default_factory=time.monotonic)
    seen_s: float = 0.0
    """When the last row arrived, on the clock of `started_s`."""

    def add_row(self, row: dict[str, Any], seen_s: float) -> None:
        self.row, self.seen_s = row, seen_s
        for name in TRAIN:
            self.add_value(name, row.get(name))

    def add_eval(self, result: "EvalResult") -> None:
        self.add_value("val/roll/ep_rew/mean", result.mean)
        self.add_value("val/roll/ep_len/mean", result.length_mean)

    def add_value(self, name: str, value: float | None) -> None:
        if value is None or value != value:
            return
        self.series.setdefault(name, fmt.Series()).add(value)
        if name in BESTS and value > self.best.get(name, float("-inf")):
            self.best[name] = value

    def fraction(self) -> float:
        """Fraction of the budget used."""
        return float(self.row.get("progress", 0.0))

    def remaining_s(self) -> float | None:
        """Estimated time for the rest of the budget at the pace of this process."""
        done = self.fraction() - self.start_fraction
        return (self.seen_s - self.started_s) / done * (1 - self.fraction()) if done > 0 else None

    def steps_per_s(self) -> float | None:
        took_s = self.seen_s - self.started_s
        return (self.row["env_steps"] - self.start_steps) / took_s if self.row and took_s else None


class Dashboard:
    """A rich renderable of a `State`."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in frame(self.state, min(options.max_width, WIDEST)):
            for text, style in line:
                yield Segment(text, _style(style))
            yield Segment.line()


@lru_cache(maxsize=64)
def _style(name: str) -> Style:
    return Style.parse(name)


def frame(state: State, width: int) -> list[Line]:
    """All lines, inside a border, exactly `width` wide."""
    inner = width - 4
    lines = [*_header(state), [], *_progress(state, inner), [], *_table(state, inner)]
    if state.messages:
        lines += [[], *state.messages]
    edge = "bright_black"
    name, run_id = f" {state.name} ", f" {state.run_id} "
    rule = width - 4 - cell_len(name) - cell_len(run_id)
    if rule < 1:
        run_id, rule = "", max(0, width - 4 - cell_len(name))
    top = _fit([(name, "bold"), ("─" * rule, edge), (run_id, SKY)], inner)
    top = [("╭─", edge), *top, ("─╮", edge)]
    body = [[("│ ", edge), *_fit(line, inner), (" │", edge)] for line in lines]
    return [top, *body, [("╰" + "─" * (width - 2) + "╯", edge)]]


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


def _header(state: State) -> list[Line]:
    return [[(f"{key:<8}", "bright_black"), (text, "none")] for key, text in state.header]


def _progress(state: State, width: int) -> list[Line]:
    fraction = state.fraction()
    bar = width - 8
    done = round(fraction * bar)
    first: Line = [("━" * done, GREEN), ("━" * (bar - done), "bright_black")]
    first.append((f" {100 * fraction:5.1f} %", "bold"))
    row, dot = state.row, (" · ", "bright_black")
    total = f" / {fmt.number(state.max_env_steps)}" if state.max_env_steps else ""
    # With an env step budget the number of epochs is an estimate, which may be exceeded.
    exact = state.planned_epochs is not None and state.max_env_steps is None
    epochs = f" / {fmt.number(state.planned_epochs)}" if exact else ""
    # Least important last: a narrow terminal cuts it off.
    second: Line = [
        (fmt.number(row.get("env_steps", 0)), "bold"),
        (f"{total} env steps", "none"),
        dot,
        (f"{fmt.duration(state.remaining_s())} left", "bold"),
        dot,
        (f"{fmt.duration(row.get('wall_s', 0.0))} so far", "none"),
        dot,
        (fmt.steps_per_second(state.steps_per_s()), "none"),
        dot,
        (f"epoch {fmt.number(row.get('epoch', 0))}{epochs}", "none"),
    ]
    return [first, second, *_time_shares(state, width)]


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
    length = max(8, min(SPARK, width - 6 - sum(len(text) for text, _ in legend)))
    bar: Line = [("█" * round(share * length), colour) for _, colour, share in known]
    drawn = sum(len(text) for text, _ in bar)
    rest = ("░" * max(0, length - drawn), "bright_black")
    return [[("time  ", "bright_black"), *bar, rest, *legend]]


def _table(state: State, width: int) -> list[Line]:
    spark = max(0, min(SPARK, width - 60))
    head = f"{'':<24}{'now':>11}{'best':>12}{'change':>11}"
    lines: list[Line] = [
        [(head, "bright_black"), ("  over the run" if spark else "", "bright_black")]
    ]
    for title, names in (("train", TRAIN), ("val", VAL)):
        shown = [name for name in names if name in state.series]
        if not shown:
            continue
        lines.append([(title, "bold")])
        lines += [_metric_row(state, name, spark) for name in shown]
    return lines


def _metric_row(state: State, name: str, spark: int) -> Line:
    metric, series = describe(name), state.series[name]
    now, best = series.last, state.best.get(name)
    assert now is not None  # a series is created with its first value
    shown: Callable[[float], str]
    if name in BESTS:
        shown = score = ScoreText(state.threshold, best)
        precision = score.decimals
    else:
        precision = metric.precision
        shown = partial(fmt.number, precision=precision)
    at_best = best is not None and now == best and len(series.means) > 1
    label = name.partition("/")[2].removeprefix("roll/").removeprefix("opt/")
    line: Line = [(f"  {label:<22}", "none")]
    line.append((f"{shown(float(now)):>11}", f"bold {GREEN}" if at_best else "bold"))
    best_text = "" if best is None else shown(float(best))
    line.append(
        (f"{('★ ' if best_text else '') + best_text:>12}", ORANGE if at_best else "bright_black")
    )
    line.append(_change(series.change(), precision, metric.better))
    line.append(("  " + fmt.sparkline(series.values(), spark), SKY))
    return line


def _change(change: float | None, precision: int, better: str | None) -> Span:
    if change is None:
        return (" " * 11, "none")
    text = fmt.signed(change, precision)
    good = better is not None and text != "·" and (change > 0) == (better == "up")
    bad = better is not None and text != "·" and not good
    return (f"{text:>11}", GREEN if good else ORANGE if bad else "bright_black")
