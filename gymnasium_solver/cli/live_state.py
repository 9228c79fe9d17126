"""What the console knows about a training: the latest row, histories, alerts, pace. No output.

The training loop's thread adds rows, evaluations and messages; the thread that draws calls
`refresh` first, which reads the loop's counters (training/activity.py).
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import output as out
from gymnasium_solver.runs.metrics import METRICS, own_metrics

if TYPE_CHECKING:
    from gymnasium_solver.runs.alerts.alert import Alert
    from gymnasium_solver.training.activity import Activity
    from gymnasium_solver.training.observer import Control, EvalResult

Span = tuple[str, str]  # text, style
Line = list[Span]

GROUPS = {"train/roll": "train", "val/roll": "val", "train/opt": "learn", "train/hp": "hp"}
GROUPS["own"] = "own"  # the groups of the table in their order, and how it calls them
HIDDEN = ("best", "std")  # shown in other columns or elsewhere
QUICK_EPOCH_S = 1.0
STOP_SIGNALS = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM"}  # and how the user knows them

SHOWN = tuple(
    name
    for name, metric in sorted(METRICS.items(), key=lambda item: item[1].priority or 0)
    if metric.show and metric.group in GROUPS and name.rpartition("/")[2] not in HIDDEN
)
"""The metrics of the table, the most important first."""
PLACES = {
    name: (list(GROUPS).index(METRICS[name].group), i)
    for i, name in enumerate(METRICS)
    if name in SHOWN
}
"""Where they stand in the table: by group, then as they are declared."""
TRAIN = tuple(name for name in SHOWN if not name.startswith("val/"))
BESTS = {name for name in SHOWN if "/ep_rew/" in name}


class Series:
    """The whole history of one value in bounded space; `add` is O(1), whatever the run's length.

    Holds up to `2 * keep` means over equally many values; when full, neighbours are merged."""

    def __init__(self, keep: int = 60) -> None:
        self.keep = keep
        self.means: list[float] = []
        self.last: float | None = None
        self.low, self.high = math.inf, -math.inf
        self.n, self.mean, self._squares = 0, 0.0, 0.0
        self._per_mean = 1
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        self.last = value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self._squares += before * (value - self.mean)  # Welford
        self._sum += value
        self._count += 1
        if self._count < self._per_mean:
            return
        self.means.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self.means) == 2 * self.keep:
            pairs = zip(self.means[::2], self.means[1::2], strict=True)
            self.means = [(a + b) / 2 for a, b in pairs]
            self._per_mean *= 2

    @property
    def std(self) -> float:
        return math.sqrt(max(0.0, self._squares) / self.n) if self.n else math.nan

    def values(self) -> list[float]:
        """The means, followed by the latest value."""
        return self.means if self.last is None or not self._count else [*self.means, self.last]

    def change(self) -> float | None:
        """The latest value minus the one a tenth of the run ago; None at the beginning."""
        if self.last is None or len(self.means) < 2:
            return None
        return self.last - self.means[-1 - max(1, len(self.means) // 10)]


class Pace:
    """Rate of a growing number over the recent past, half a minute or more."""

    SHORTEST_S, FRACTION, SAMPLES = 30.0, 0.25, 60

    def __init__(self, now_s: float, value: float) -> None:
        self._began_s = now_s
        self._samples: deque[tuple[float, float]] = deque([(now_s, value)])
        self._last = (now_s, value)

    def add(self, now_s: float, value: float) -> None:
        self._last = (now_s, value)
        window_s = max(self.SHORTEST_S, self.FRACTION * (now_s - self._began_s))
        if now_s - self._samples[-1][0] >= window_s / self.SAMPLES:
            self._samples.append(self._last)
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - window_s:
            self._samples.popleft()

    def per_second(self) -> float | None:
        """None before anything has happened."""
        (from_s, from_value), (to_s, to_value) = self._samples[0], self._last
        if to_s <= from_s or to_value <= from_value:
            return None
        return (to_value - from_value) / (to_s - from_s)


@dataclass
class State:
    run_id: str
    name: str
    header: list[tuple[str, list[str]]]
    """(label, parts) of each line; a narrow terminal leaves out the last parts."""
    max_env_steps: int | None
    planned_epochs: int
    activity: "Activity"
    control: "Control"
    threshold: float | None = None
    start_steps: int = 0  # env steps at which this process started; above 0 after a resume
    start_epoch: int = 0
    wall_before_s: float = 0.0  # training time before this process
    folder_url: str = ""
    key_help: list[tuple[str, str]] = field(default_factory=list)
    """(key, what it does), if keys are read."""
    show_help: bool = False
    ended: bool = False
    signal: str | None = None  # the signal that asked for a stop, if one did
    row: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    messages: deque[Line] = field(default_factory=lambda: deque(maxlen=8))
    alerts: "dict[str, Alert]" = field(default_factory=dict)  # the active ones, by name

    def __post_init__(self) -> None:
        self.clock_s = self.started_s = self.activity.clock_s()
        self.env_steps = self.start_steps
        self._steps_pace = Pace(self.started_s, self.start_steps)
        self._fraction_pace = Pace(self.started_s, self.fraction())

    # --- what arrives

    def refresh(self) -> None:
        """Read the loop's counters. A counter that is read while it changes never goes back."""
        self.clock_s = max(self.clock_s, self.activity.clock_s())
        self.env_steps = max(self.env_steps, self.activity.steps_now)
        self._steps_pace.add(self.clock_s, self.env_steps)
        self._fraction_pace.add(self.clock_s, self.fraction())

    def note_signal(self, name: str) -> None:
        """A signal has arrived; the loop itself notes it when its present call returns."""
        if self.activity.takes_signals and name in STOP_SIGNALS:
            self.signal = name

    def add_row(self, row: dict[str, Any]) -> None:
        self.row = row
        for name in TRAIN:
            self.add_value(name, row.get(name))
        for name in own_metrics(row):
            self.add_value(name, row[name])

    def add_eval(self, result: "EvalResult") -> None:
        self.add_value("val/roll/ep_rew/mean", result.mean)
        self.add_value("val/roll/ep_len/mean", result.length_mean)
        self.add_value("val/roll/success", result.success)

    def add_value(self, name: str, value: float | None) -> None:
        if value is None or value != value:
            return
        self.series.setdefault(name, Series()).add(value)
        if name in BESTS and value > self.best.get(name, float("-inf")):
            self.best[name] = value

    def add_alert(self, alert: "Alert") -> None:
        if alert.is_over:
            self.alerts.pop(alert.name, None)
        else:
            self.alerts[alert.name] = alert

    # --- what follows from it

    def fraction(self) -> float:
        """Fraction of the budget used, the running epoch included."""
        if self.max_env_steps:
            return min(1.0, self.env_steps / self.max_env_steps)
        whole = self.row.get("epoch", self.start_epoch)
        part = self.epoch_steps() / self.activity.epoch_size if self.activity.epoch_size else 0.0
        is_under_way = self.activity.epoch > whole
        return min(1.0, (whole + min(part, 1.0) * is_under_way) / self.planned_epochs)

    def remaining_s(self) -> float | None:
        """Estimated time for the rest of the budget at the recent pace; None if unknown."""
        rate = self._fraction_pace.per_second()
        return None if rate is None else (1 - self.fraction()) / rate

    def steps_per_s(self) -> float | None:
        """The recent speed; of a run that has ended, that of this whole process."""
        if not self.ended:
            return self._steps_pace.per_second()
        took_s = self.wall_s() - self.wall_before_s
        return (self.env_steps - self.start_steps) / took_s if took_s > 0 else None

    def wall_s(self) -> float:
        """Training time so far, over all resumes and without pauses; at the end without the final
        test, as in the result."""
        if self.ended and self.row:
            return float(self.row["wall_s"])
        return self.wall_before_s + self.clock_s - self.started_s

    def epoch(self) -> int:
        """The epoch under way; of a run that has ended, the last one."""
        return int(self.row.get("epoch", 0)) if self.ended else self.activity.epoch

    def epoch_steps(self) -> int:
        """Env steps of the running epoch so far."""
        return max(0, self.env_steps - self.activity.epoch_began_steps)

    def epoch_remaining_s(self) -> float | None:
        """Estimated time until the epoch has been collected; None if unknown."""
        speed, a = self.steps_per_s(), self.activity
        if speed is None or a.phase not in ("collecting", "training"):
            return None
        left = a.epoch_size - self.epoch_steps()
        if self.max_env_steps:
            left = min(left, self.max_env_steps - self.env_steps)
        return max(0, left) / speed

    # --- in words

    def doing(self) -> list[str]:
        """What the loop is doing, as parts of a line, the most important first."""
        a = self.activity
        took = out.duration(self.clock_s - a.phase_began_s)
        if a.is_paused:
            return ["paused"]
        if a.phase in ("evaluating", "testing"):
            kind = "held-out episodes" if a.phase == "testing" else "episodes"
            done = f"{a.phase} {a.eval_episodes_done:,} / {a.eval_episodes:,} {kind}"
            return [done, f"{a.eval_rows:,} steps", took]
        if a.phase == "saving":
            return ["saving a checkpoint", took]
        if a.phase in ("starting", "over"):
            return [a.phase]
        episodes = f"{a.episodes:,} {plural('episode', a.episodes)}"
        if self.clock_s - a.epoch_began_s < QUICK_EPOCH_S:  # too quick to follow
            return ["training", episodes]
        if a.phase == "learning":
            return [f"learning from epoch {a.epoch:,}", took, episodes]
        steps = f"{self.epoch_steps():,} / {a.epoch_size:,} env steps of epoch {a.epoch:,}"
        return [f"{a.phase} {steps}", episodes]

    def requests(self) -> list[str]:
        """What was asked for and has not happened yet, one line each."""
        a, control = self.activity, self.control
        if self.ended:
            return []
        wishes = ["saves a checkpoint"] * control.wants_checkpoint
        wishes += ["evaluates"] * control.wants_evaluation
        stop_signal = a.stop_signal or self.signal
        stops = stop_signal is not None or control.stop_reason is not None
        wishes = ["saves and stops"] if stops else wishes
        if not wishes:
            return []
        by = "" if stop_signal is None else f"{STOP_SIGNALS[stop_signal]}: "
        gap = "this evaluation"  # when the loop looks at requests
        if a.phase not in ("evaluating", "testing"):
            left_s = self.epoch_remaining_s()
            is_long = left_s is not None and left_s >= 1
            gap = "this epoch" + (f", in about {out.duration(left_s)}" if is_long else "")
        lines = [f"{by}{' and '.join(wishes)} after {gap}"]
        if stop_signal is not None:
            lost = max(0, self.env_steps - a.saved_steps)
            again = "Ctrl-C again" if stop_signal == "SIGINT" else "a second signal"
            lines.append(f"{again}: stops at once and loses the last {lost:,} env steps")
        return lines


def plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"
