"""What meta.json and the events of a run say, checked: a file may be damaged or forged.

Texts are stripped of control characters. A field of another type than expected is a RunError that
names the file and the field.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.files import finite

_OF_EXPERIMENT = re.compile(r"(?:^|/)experiments/([^/]+)/configs/[^/]+$")
_FIX = "Restore the file from a copy, or delete the run."


class Best(TypedDict):
    """Validation of the best checkpoint: the highest mean, or the one that passed the test."""

    score: float
    env_steps: int
    epoch: int | None
    greedy: NotRequired[bool]  # whether greedy or sampled actions reached it; absent in old runs


class TestScore(TypedDict):
    """Held-out test of the selected checkpoint, which decides whether the run is solved."""

    mean: float
    stderr: float | None  # standard error of the mean; None with one episode
    episodes: int
    greedy: bool
    success: NotRequired[float]
    """Share of the episodes with a success at any step, where the env reports it."""


class CheckpointSummary(TypedDict):
    env_steps: int
    best: bool
    last: bool
    score: float | None


@dataclass(frozen=True)
class RunSummary:
    """A run's identity, status and results."""

    id: str
    path: str
    env_id: str
    algo_id: str
    variant: str | None
    seed: int | None
    created_at: str
    status: str
    """created, running, finished, interrupted, failed; killed: its process ended without recording
    it; broken: its meta.json cannot be read (`stop_reason` says why)."""
    stop_reason: str | None
    stop_detail: str | None  # the signal of an interruption, or the reason given by an observer
    solved: bool | None  # whether `test` reached the threshold; None without a threshold
    test: TestScore | None  # None until the run has been tested
    test_note: str | None  # why the test has the actions and the number of episodes that it has
    env_steps: int
    max_env_steps: int | None
    epoch: int
    episodes: int
    wall_s: float
    threshold: float | None
    best: Best | None  # validation score, like `last_eval`
    last_eval: dict[str, Any] | None
    checkpoints: list[CheckpointSummary]
    experiment: str | None = None  # the experiment that the run is part of
    changed: dict[str, Any] | None = None
    """Values of the fields that are not those of the shipped config; None if none is shipped."""
    activity: dict[str, Any] | None = None
    """What a run in training is doing: `row_at`, when its last row of metrics was written (seconds
    since 1970), and during a long evaluation `phase`, `done` and `of` episodes."""
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str = ""
    config: dict[str, Any] | None = None  # the resolved config, if requested

    @property
    def name(self) -> str:
        return f"{self.env_id}:{self.variant or self.algo_id}"

    @property
    def test_mean(self) -> float | None:
        return self.test["mean"] if self.test else None

    @property
    def best_score(self) -> float | None:
        return self.best["score"] if self.best else None

    @property
    def score(self) -> float | None:
        """The mean of the held-out test; without a test the best validation."""
        return self.best_score if self.test is None else self.test_mean

    @property
    def env_steps_per_s(self) -> float | None:
        return self.env_steps / self.wall_s if self.wall_s else None

    def to_dict(self) -> dict[str, Any]:
        """All fields, in order; the values are JSON types."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


class Fields:
    """The fields of a mapping that was read from a file, by type."""

    def __init__(self, values: Mapping[str, Any], file: Path) -> None:
        self.values, self.file = values, file

    def text(self, name: str) -> str | None:
        value = self._get(name, "text", lambda value: isinstance(value, str))
        return None if value is None else printable(value)

    def count(self, name: str) -> int | None:
        return self._get(name, "a whole number >= 0", lambda v: type(v) is int and v >= 0)

    def number(self, name: str) -> float | int | None:
        return self._get(name, "a number", lambda value: finite(value) is not None)

    def flag(self, name: str) -> bool | None:
        return self._get(name, "true or false", lambda value: isinstance(value, bool))

    def mapping(self, name: str) -> "Fields | None":
        value = self._get(name, "a mapping", lambda value: isinstance(value, dict))
        return None if value is None else Fields(value, self.file)

    def _get(self, name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.values.get(name)
        if value is not None and not fits(value):
            shown = printable(repr(value))
            shown = shown if len(shown) <= 60 else shown[:60] + "..."
            raise RunError(f"{self.file}: {name} is {shown}, expected {expected}. {_FIX}")
        return value


def summary_of(
    path: Path, meta: Mapping[str, Any], checkpoints: list[CheckpointSummary]
) -> RunSummary:
    """The summary of the run in `path` with this content of meta.json."""
    fields = Fields(meta, path / "meta.json")
    identity = ("env_id", "algo_id", "created_at", "status")
    given: dict[str, Any] = {name: fields.text(name) or "" for name in identity}
    given |= {n: fields.text(n) for n in ("variant", "stop_reason", "stop_detail", "test_note")}
    given |= {name: fields.count(name) or 0 for name in ("env_steps", "epoch", "episodes")}
    given |= {name: fields.count(name) for name in ("seed", "max_env_steps")}
    tested, last_eval = fields.mapping("test"), fields.mapping("last_eval")
    test = _test_score(tested) if tested is not None and "mean" in tested.values else None
    threshold = fields.number("threshold")
    return RunSummary(
        id=path.name,
        path=str(path),
        **given,
        wall_s=fields.number("wall_s") or 0.0,
        threshold=threshold,
        solved=None if threshold is None else bool(test and fields.flag("solved")),
        test=test,
        best=_best(fields.mapping("best")),
        last_eval=dict(last_eval.values) if last_eval else None,
        checkpoints=checkpoints,
        experiment=_experiment(meta.get("command")),
        changed=_changed(meta.get("changed")),
        activity=meta.get("activity"),
    )


def _experiment(command: Any) -> str | None:
    """The experiment whose config was trained: <runs>/experiments/<id>/configs/<file>."""
    for word in command if isinstance(command, list) else ():
        if isinstance(word, str) and (found := _OF_EXPERIMENT.search(word)):
            return printable(found[1])
    return None


def _changed(pairs: Any) -> dict[str, Any] | None:
    if not isinstance(pairs, dict):
        return None
    return {
        printable(name): printable(pair[1]) if isinstance(pair[1], str) else pair[1]
        for name, pair in pairs.items()
        if isinstance(pair, list) and len(pair) == 2
    }


def test_score(test: Mapping[str, Any]) -> TestScore:
    """The fields of a test event shown in a verdict."""
    return _test_score(Fields(test, Path("events.jsonl")))


def check_evaluation(event: Mapping[str, Any], file: Path) -> None:
    """RunError if a figure of an evaluation, read from `file`, has another type."""
    fields = Fields(event, file)
    if fields.count("env_steps") is None:
        raise RunError(f"{file} has an evaluation without env_steps. {_FIX}")
    for name in ("mean", "std", "min", "max", "length_mean", "stderr", "success"):
        fields.number(name)
    for name in ("episodes", "seed", "epoch"):
        fields.count(name)
    for name in ("stage", "at"):
        fields.text(name)
    fields.flag("greedy")
    fields.mapping("protocol")


def _test_score(fields: Fields) -> TestScore:
    mean, success = fields.number("mean"), fields.number("success")
    score: TestScore = {
        "mean": math.nan if mean is None else mean,
        "stderr": fields.number("stderr"),
        "episodes": fields.count("episodes") or 0,
        "greedy": bool(fields.flag("greedy")),
    }
    return score if success is None else {**score, "success": success}


def _best(fields: Fields | None) -> Best | None:
    score = fields.number("score") if fields else None
    if fields is None or score is None:
        return None
    env_steps, epoch = fields.count("env_steps"), fields.count("epoch")
    best: Best = {"score": score, "env_steps": env_steps or 0, "epoch": epoch}
    greedy = fields.flag("greedy")
    return best if greedy is None else {**best, "greedy": greedy}
