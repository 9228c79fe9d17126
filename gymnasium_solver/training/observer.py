"""Callbacks of a training run, what they are given, and the requests an observer can make. An
example is in docs/runs.md#observers.

Observers are called synchronously from the training loop, in order. One that raises is reported to
the others and in events.jsonl, and never stops training. A plugin can register an observer by name
for `observers: [...]`.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.spec import EnvSpec, TaskFacts
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.registry import observers
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.alerts.judge import Judge, judge_of
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.query import RunSummary, TestScore, test_score
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Activity

MOST_FAILURES = 3
MOST_ROWS, MOST_STEPS = 4, 1024  # judged together by Alerts


class Control:
    """Requests to the training loop, from any thread. The loop checks them at the end of every
    epoch; a pause takes effect at the next env step. None of them changes what is learnt."""

    def __init__(self, activity: Activity | None = None) -> None:
        self.activity = activity or Activity()
        self.stop_reason: str | None = None
        self.wants_checkpoint = self.wants_evaluation = self.wants_video = False
        self.can_record_video = False
        """Set by whatever records the evaluation for which a video was requested."""

    def stop(self, reason: str) -> None:
        """Save and end the run after this epoch with stop reason `requested`; it can be resumed."""
        self.stop_reason = reason or "no reason given"
        self.activity.is_paused = False

    def checkpoint(self) -> None:
        """Save a checkpoint after this epoch."""
        self.wants_checkpoint = True

    def evaluate(self) -> None:
        """Evaluate after this epoch, regardless of the cadence. The result counts like any other:
        it may choose the best checkpoint, and end the run if it reaches the goal."""
        self.wants_evaluation = True

    def record_video(self) -> None:
        """Record a video of the next evaluation, if `can_record_video`."""
        self.wants_video = True

    def pause(self) -> None:
        """Stop before the next env step and wait; the time does not count as training time."""
        self.activity.is_paused = True

    def resume(self) -> None:
        self.activity.is_paused = False

    # -- for the loop ---

    def take(self, request: str) -> bool:
        """Whether a `checkpoint` or an `evaluation` was requested since the last call."""
        was_asked: bool = getattr(self, f"wants_{request}")
        setattr(self, f"wants_{request}", False)
        return was_asked


@dataclass(frozen=True)
class TrainInfo:
    """What is known before the first step."""

    env_spec: EnvSpec
    n_parameters: int
    device: str
    update_mode: str  # how gradients are computed: plain torch, recorded in NumPy, or CUDA graphs
    threshold: float | None
    planned_epochs: int
    test_episodes: int | None = None
    """Held-out episodes of the final test; None if there is no test."""
    resumed_from: int | None = None  # env steps
    wall_s: float = 0.0  # training time before this process
    notes: list[str] = field(default_factory=list)
    control: Control = field(default_factory=Control)
    """Takes requests for a stop, a checkpoint, an evaluation or a pause."""
    activity: Activity = field(default_factory=Activity)
    """What the loop is doing right now, between the callbacks."""


@dataclass(frozen=True, repr=False)
class EvalResult:
    """Raw returns of whole episodes; `seed` reproduces the evaluation exactly."""

    env_steps: int
    epoch: int
    episodes: int
    greedy: bool
    seed: int
    mean: float
    std: float
    min: float
    max: float
    length_mean: float
    returns: list[float]
    lengths: list[int]
    success: float | None = None
    """Share of the episodes with a success at any step, where the env reports it (`is_success` or
    `success` in its info)."""
    protocol: dict[str, Any] = field(default_factory=dict)
    """Settings that affect the score, for suites (Atari) with more than one evaluation protocol."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Mean, standard error, episodes and threshold by task, where a run has several."""
    other: dict[str, Any] = field(default_factory=dict)
    """Mean, standard error and episodes with the other actions (sampled instead of greedy, or the
    reverse), where a validation measured both."""

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean; None with a single episode."""
        return self.std / math.sqrt(self.episodes - 1) if self.episodes > 1 else None

    def __repr__(self) -> str:
        stderr = "" if self.stderr is None else f" ± {self.stderr:.3g}"
        mode = "greedy" if self.greedy else "sampled"
        return (
            f"EvalResult(mean {self.mean:.6g}{stderr}, {self.episodes} episodes, {mode}, "
            f"seed {self.seed})"
        )

    def to_dict(self) -> dict[str, Any]:
        given = asdict(self)
        absent: dict[str, Any] = {"protocol": {}, "success": None, "tasks": {}, "other": {}}
        fields = {k: v for k, v in given.items() if k not in absent or v != absent[k]}
        return fields | {"stderr": self.stderr}

    def score(self) -> TestScore:
        """The fields of a test shown in a verdict."""
        return test_score(self.to_dict())

    @property
    def is_clearly_better(self) -> bool:
        """Than the other actions, by two standard errors."""
        error = math.hypot(self.stderr or 0.0, self.other.get("stderr") or 0.0)
        return bool(self.other) and self.mean - self.other["mean"] > 2 * error

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in fields.items() if name != "stderr"})

    @classmethod
    def of_episodes(cls, returns: list[float], lengths: list[int], **facts: Any) -> Self:
        """The result of whole episodes; `facts`: the fields that they do not give."""
        scores = np.asarray(returns, float)
        return cls(
            episodes=len(returns),
            mean=float(scores.mean()),
            std=float(scores.std()),
            min=float(scores.min()),
            max=float(scores.max()),
            length_mean=float(np.mean(lengths)),
            returns=returns,
            lengths=lengths,
            **facts,
        )


def task_scores(
    tasks: Sequence[TaskFacts], which: Sequence[int], returns: Sequence[float]
) -> dict[str, dict[str, Any]]:
    """Scores by task; `which`: the task of each return. A task without an episode has none."""
    found = {}
    for number, task in enumerate(tasks):
        own = np.array([r for r, w in zip(returns, which, strict=True) if w == number])
        if len(own):
            stderr = float(own.std() / math.sqrt(len(own) - 1)) if len(own) > 1 else None
            score = {"mean": float(own.mean()), "stderr": stderr, "episodes": len(own)}
            found[task.name] = {**score, "threshold": task.threshold}
    return found


class Observer:
    """Base class with empty callbacks; a subclass overrides the ones it needs."""

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        """Before the first step."""

    shows_rows = False
    """Called after the others at the end of an epoch: with the metrics that they added."""

    def on_epoch(self, row: dict[str, Any]) -> None:
        """After each epoch, with its row of metrics. `row["own/name"] = 1.5` adds a metric."""

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        """After each evaluation during training."""

    def on_test(self, result: EvalResult, required: float) -> None:
        """After a held-out test during training; it passed if its mean is at least `required`."""

    def on_checkpoint(self, path: Path, kind: str) -> None:
        """A checkpoint was written: periodic, best or last."""

    def on_alert(self, alert: Alert) -> None:
        """An alert began or, if `alert.is_over`, ended."""

    def on_message(self, level: str, text: str) -> None:
        """A message for the user: level is info, warning or error."""

    def on_profile(self, table: list[str], trace: Path) -> None:
        """Time by section, at the end of a run with `profile`, for any stop reason."""

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        """At the end of the run, except after an error; `final` has the test, greedy and
        sampled."""


class Observers(Observer):
    """Calls several observers in order. After `MOST_FAILURES` failures one is no longer called."""

    def __init__(self, members: Sequence[Observer] = ()) -> None:
        self.members = list(members)
        self._failures: dict[int, int] = {}
        self._told: set[int] = set()
        self._run: Run | None = None

    def _call(self, method: str, *args: Any, members: Sequence[Observer] | None = None) -> None:
        if method == "on_start":
            self._run = args[0]
        for member in list(self.members) if members is None else members:
            try:
                getattr(member, method)(*args)
            except Exception as error:  # a failing observer must not end training
                self._failed(member, method, error)

    def on_epoch(self, row: dict[str, Any]) -> None:
        """Members may add metrics, and change none."""
        for member in sorted(self.members, key=lambda member: member.shows_rows):
            known = dict(row)
            self._call("on_epoch", row, members=[member])
            if row != known:
                self._keep_own(member, known, row)

    def _keep_own(self, member: Observer, known: dict[str, Any], row: dict[str, Any]) -> None:
        own = {name: row[name] for name in row if name not in known}
        # A NaN is not equal to itself.
        wrong = [name for name, x in known.items() if row.get(name) != x and x == x]
        wrong += [str(name) for name, value in own.items() if not is_metric(name, value)]
        row.clear()
        row |= known | {name: float(x) for name, x in own.items() if is_metric(name, x)}
        if wrong and id(member) not in self._told:
            self._told.add(id(member))
            self._report(
                f"observer {type(member).__name__}: metrics are not changed, and new ones are "
                f"numbers with a name: {', '.join(wrong)[:200]}"
            )

    def _failed(self, member: Observer, method: str, error: Exception) -> None:
        count = self._failures[id(member)] = self._failures.get(id(member), 0) + 1
        name = type(member).__name__
        if count == MOST_FAILURES:
            self.members.remove(member)
            self._report(f"observer {name} failed {count} times and is no longer called")
        elif count == 1:
            text = f"observer {name} failed in {method}, {type(error).__name__}: {error}"
            self._report(text, left_out=member)

    def _report(self, text: str, left_out: Observer | None = None) -> None:
        if self._run is not None:
            with suppress(WriteError):  # the metrics report it if the folder cannot be written
                self._run.log_event("observer_failed", text=text)
        for member in list(self.members):
            if member is not left_out:
                try:
                    member.on_message("warning", text)
                except Exception as error:
                    self._failed(member, "on_message", error)


def _forwarded(method: str) -> Callable[..., None]:
    return lambda self, *args: self._call(method, *args)


for _name in [name for name in vars(Observer) if name.startswith("on_")]:
    if _name not in vars(Observers):
        setattr(Observers, _name, _forwarded(_name))


def is_metric(name: Any, value: Any) -> bool:
    """Whether a row of metrics takes this."""
    is_number = isinstance(value, int | float | np.number | np.bool_)
    return is_number and isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()


# -- alerts -----------------------------------------------------------------------------------


def rows_together(config: Config) -> int:
    """How many rows are judged at a time: up to 4 epochs or 1024 env steps."""
    return max(1, min(MOST_ROWS, MOST_STEPS // (config.n_envs * config.n_steps)))


class Alerts:
    """Judges every row of metrics; what begins or ends goes to the observers and to events.jsonl.
    Judging only reads rows, and never stops or changes training.

    Rows of short epochs are judged a few at a time, which costs half as much: what they raise is
    the same, at the same env steps, a few epochs later. No row waits beyond a checkpoint or the
    end."""

    def __init__(self, run: Run, observer: Observer, rows_together: int = 1) -> None:
        """A resumed run has rows: they are judged again without raising anything, so that the state
        is that of a run without a break. Observers are told what is still active."""
        self.run, self.observer, self.rows_together = run, observer, rows_together
        self._waiting: list[Mapping[str, Any]] = []
        self.judge: Judge | None = judge_of(run)
        active: dict[str, Alert] = {}
        for row in read_jsonl(run.metrics_path):
            for alert in self._ask(Judge.see, row):
                active[alert.name] = alert
        for alert in active.values():
            if not alert.is_over:
                observer.on_alert(alert)

    def see(self, row: Mapping[str, Any]) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= self.rows_together:
            self.catch_up()

    def catch_up(self) -> None:
        """Judge the rows that wait. A checkpoint must not be ahead of the alerts: a resume does not
        raise those of rows before it."""
        rows, self._waiting = self._waiting, []
        for row in rows:
            self._tell(self._ask(Judge.see, row))

    def diverged(self, text: str, env_steps: int, of_env: bool = False) -> None:
        self.catch_up()
        self._tell(self._ask(Judge.see_divergence, text, env_steps, of_env))

    def _ask(self, question: Callable[..., list[Alert]], *given: Any) -> list[Alert]:
        if self.judge is None:
            return []
        try:
            return question(self.judge, *given)
        except Exception as error:  # a rule that fails must not end training
            self.judge = None
            text = f"alerts are off, a rule failed: {type(error).__name__}: {error}"
            self.run.log_event("alerts_failed", text=text)
            self.observer.on_message("warning", text)
            return []

    def _tell(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            self.run.log_event("alert", **alert.to_dict())
            self.observer.on_alert(alert)


# -- plain functions as an observer: `gs.train(..., on_epoch=..., on_eval=...)` ---------------

OnEpoch = Callable[[dict[str, Any]], object]
"""Called with the row of metrics of each epoch. True or a text: stop."""
OnEval = Callable[[EvalResult], object]
"""Called with each evaluation during training. True or a text: stop."""


class Callbacks(Observer):
    """Calls functions; an answer of True, or a text (the reason), stops the run after the epoch."""

    def __init__(self, on_epoch: OnEpoch | None = None, on_eval: OnEval | None = None) -> None:
        self._functions: dict[str, Any] = {"on_epoch": on_epoch, "on_eval": on_eval}
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise ConfigError(f"{name}: got {function!r}, expected a function.")
        self._control = Control()
        self._warned: set[str] = set()

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self._control = info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._ask("on_epoch", row)

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        self._ask("on_eval", result)

    def _ask(self, name: str, given: Any) -> None:
        try:
            answer = self._functions[name] and self._functions[name](given)
        except Exception as error:
            if name not in self._warned:  # without a console nobody would see it
                self._warned.add(name)
                text = f"{name} failed, training continues: {type(error).__name__}: {error}"
                warnings.warn(text, stacklevel=2)
            raise
        if isinstance(answer, str) and answer:
            self._control.stop(answer)
        elif answer and not isinstance(answer, str):
            self._control.stop(f"{name} asked for it")


def register_observer(name: str) -> Callable[[type[Observer]], type[Observer]]:
    """Decorator: a class derived from `Observer`, created without arguments, that configs select
    with `observers: [name]`."""
    return observers.register(name)
