"""Callbacks of a training run, and the requests an observer can make.

    class StopWhenShort(Observer):
        def on_start(self, run, config, info):
            self.control = info.control

        def on_epoch(self, row):
            if row["train/roll/ep_len/mean"] < 20:
                self.control.stop("episodes became too short")

    train(config, runs_root=Path("runs"), observers=[TrainConsole(), StopWhenShort()])

Observers are called synchronously from the training loop, in order. An observer that raises is
reported and never stops training (training/observers.py). A plugin can register an observer by name
for `observers: [...]`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.spec import EnvSpec, TaskFacts
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.query import RunSummary, TestScore, test_score
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Activity


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

    def take_checkpoint(self) -> bool:
        """Whether a checkpoint was requested since the last call."""
        if self.wants_checkpoint:
            self.wants_checkpoint = False
            return True
        return False

    def take_evaluation(self) -> bool:
        """Whether an evaluation was requested since the last call."""
        if self.wants_evaluation:
            self.wants_evaluation = False
            return True
        return False


@dataclass(frozen=True)
class TrainInfo:
    """What is known before the first step."""

    env_spec: EnvSpec
    n_parameters: int
    device: str
    update_mode: str
    """How gradients are computed: plain torch, recorded in NumPy, or CUDA graphs."""
    threshold: float | None
    planned_epochs: int
    test_episodes: int | None = None
    """Held-out episodes of the final test; None if there is no test."""
    resumed_from: int | None = None  # env steps
    wall_s: float = 0.0
    """Training time before this process."""
    notes: list[str] = field(default_factory=list)
    control: Control = field(default_factory=Control)
    """For observers that request a stop, a checkpoint, an evaluation or a pause."""
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
    """Share of the episodes that ended in success, where the env reports it (`is_success` or
    `success` in its info)."""
    protocol: dict[str, Any] = field(default_factory=dict)
    """Settings that affect the score, for suites (Atari) with more than one evaluation protocol."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Mean, standard error, episodes and threshold by task, where a run has several."""

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
        absent: dict[str, Any] = {"protocol": {}, "success": None, "tasks": {}}
        fields = {k: v for k, v in given.items() if k not in absent or v != absent[k]}
        return fields | {"stderr": self.stderr}

    def score(self) -> TestScore:
        """The fields of a test shown in a verdict."""
        return test_score(self.to_dict())

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in fields.items() if name != "stderr"})


def eval_result(
    returns: list[float],
    lengths: list[int],
    *,
    greedy: bool,
    seed: int,
    env_steps: int = 0,
    epoch: int = 0,
    success: float | None = None,
    protocol: dict[str, Any] | None = None,
    tasks: dict[str, dict[str, Any]] | None = None,
) -> EvalResult:
    """The result of whole episodes."""
    scores = np.asarray(returns, float)
    return EvalResult(
        env_steps=env_steps,
        epoch=epoch,
        episodes=len(returns),
        greedy=greedy,
        seed=seed,
        mean=float(scores.mean()),
        std=float(scores.std()),
        min=float(scores.min()),
        max=float(scores.max()),
        length_mean=float(np.mean(lengths)),
        returns=returns,
        lengths=lengths,
        success=success,
        protocol=protocol or {},
        tasks=tasks or {},
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

    def on_epoch(self, row: dict[str, Any]) -> None:
        """After each epoch, with the row of metrics just logged."""

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
        """At the end of a run with `profile`, for any stop reason: time by section."""

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        """At the end of the run, except after an error; `final` has the test, greedy and
        sampled."""
