"""The read API of runs, used by the command line, web pages and agents.

    for run in list_runs(runs_root()): print(run.id, run.status, run.best)
    curve = get_metrics("@last", ["val/roll/ep_rew/mean"])["val/roll/ep_rew/mean"]

Every `ref` is a reference as typed by a user (see `runs/resolve.py`) or a `Run`; `root` defaults to
`runs_root()`. Results are frozen dataclasses; `.to_dict()` converts them to JSON types. Light to
import.
"""

import dataclasses
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.curves import Curve, Row, curves, event_rows
from gymnasium_solver.runs.metrics import parse_jsonl, read_jsonl
from gymnasium_solver.runs.resolve import resolve_run, run_ids
from gymnasium_solver.runs.run import Run, live_status, runs_root


class Best(TypedDict):
    """Validation score of the best checkpoint: the highest mean, or the one that passed the
    test."""

    score: float
    env_steps: int
    epoch: int | None


class TestScore(TypedDict):
    """Held-out test of the selected checkpoint, which decides whether the run is solved."""

    mean: float
    stderr: float | None
    """Standard error of the mean; None with one episode."""
    episodes: int
    greedy: bool


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
    stop_detail: str | None
    """The signal of an interruption, or the reason given by an observer."""
    solved: bool | None
    """Whether `test` reached the threshold; None without a threshold."""
    test: TestScore | None
    """None until the run has been tested."""
    env_steps: int
    max_env_steps: int | None
    epoch: int
    episodes: int
    wall_s: float
    threshold: float | None
    best: Best | None
    """Validation score, like `last_eval`."""
    last_eval: dict[str, Any] | None
    checkpoints: list[CheckpointSummary]
    config: dict[str, Any] | None = None
    """The resolved config, if requested."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def list_runs(root: Path | None = None, filter: str | None = None) -> list[RunSummary]:
    """All runs, newest first. `filter`: words that must all occur in the id, env, algorithm or
    status; "solved" selects solved runs."""
    root = root or runs_root()
    found = [_summary_or_broken(Run(root / run_id)) for run_id in run_ids(root)]
    words = (filter or "").lower().split()
    return [run for run in found if all(word in _searchable(run) for word in words)]


def get_run(
    ref: str | Run, root: Path | None = None, *, include_config: bool = False
) -> RunSummary:
    run = _resolve(ref, root)
    summary = _summary(run)
    return dataclasses.replace(summary, config=get_config(run)) if include_config else summary


def get_meta(ref: str | Run, root: Path | None = None) -> dict[str, Any]:
    """The content of meta.json: command, versions, git, machine, resumes."""
    return _resolve(ref, root).meta()


def get_config(ref: str | Run, root: Path | None = None) -> dict[str, Any]:
    """The resolved config that the run was started with."""
    import yaml

    path = _resolve(ref, root).config_path
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RunError(
            f"{path} cannot be read: {error}. Restore it; without it the run cannot be repeated."
        ) from None
    if not isinstance(config, dict):
        raise RunError(f"{path} contains a {type(config).__name__}, expected a mapping of fields.")
    return config


def get_metrics(
    ref: str | Run, names: Iterable[str] | None = None, root: Path | None = None
) -> dict[str, Curve]:
    """Curves by metric name. `names` may contain wildcards (`train/opt/*`) and names of other
    systems (`rollout/ep_rew_mean`); None: all metrics."""
    return curves(get_rows(ref, root), names)


def get_rows(ref: str | Run, root: Path | None = None) -> list[Row]:
    """The rows of metrics.jsonl, then rows with the metrics of tests and alerts."""
    run = _resolve(ref, root)
    return [*read_jsonl(run.metrics_path), *event_rows(read_jsonl(run.events_path), run.meta())]


def get_events(
    ref: str | Run, kind: str | None = None, root: Path | None = None
) -> list[dict[str, Any]]:
    """Evaluations, checkpoints and other events in the order logged, optionally of one kind."""
    events = read_jsonl(_resolve(ref, root).events_path)
    return [event for event in events if kind is None or event.get("kind") == kind]


def get_log(ref: str | Run, lines: int | None = None, root: Path | None = None) -> list[str]:
    """The last `lines` of run.log, or all of it."""
    path = _resolve(ref, root).log_path
    if not path.is_file():
        return []
    text = path.read_text(errors="replace").splitlines()
    return text if lines is None else text[max(0, len(text) - lines) :]


def test_score(test: dict[str, Any]) -> TestScore:
    """The fields of a test event shown in a verdict."""
    mean, stderr, n = test.get("mean"), test.get("stderr"), test.get("episodes")
    return {
        "mean": math.nan if mean is None else mean,
        "stderr": stderr,
        "episodes": n or 0,
        "greedy": bool(test.get("greedy")),
    }


def _resolve(ref: str | Run, root: Path | None) -> Run:
    return resolve_run(ref, root or runs_root())


def _summary(run: Run) -> RunSummary:
    meta = run.meta()
    status = live_status(meta)
    if status in ("running", "killed"):  # meta.json is written rarely; the metrics are newer
        meta |= _latest_counts(run, meta)
    return _from_meta(run, meta | {"status": status})


def _summary_or_broken(run: Run) -> RunSummary:
    """A damaged folder must not hide the other runs."""
    try:
        return _summary(run)
    except RunError as error:
        return _from_meta(run, {"status": "broken", "stop_reason": str(error)})


def _from_meta(run: Run, meta: dict[str, Any]) -> RunSummary:
    checkpoints: list[CheckpointSummary] = [
        {"env_steps": c.env_steps, "best": c.is_best, "last": c.is_last, "score": c.score}
        for c in list_checkpoints(run.checkpoints_dir)
    ]
    tested, threshold = meta.get("test"), meta.get("threshold")
    test = test_score(tested) if isinstance(tested, dict) and "mean" in tested else None
    return RunSummary(
        id=run.id,
        path=str(run.path),
        env_id=meta.get("env_id", ""),
        algo_id=meta.get("algo_id", ""),
        variant=meta.get("variant"),
        seed=meta.get("seed"),
        created_at=meta.get("created_at", ""),
        status=meta["status"],
        stop_reason=meta.get("stop_reason"),
        stop_detail=meta.get("stop_detail"),
        solved=None if threshold is None else bool(test and meta.get("solved")),
        test=test,
        env_steps=meta.get("env_steps", 0),
        max_env_steps=meta.get("max_env_steps"),
        epoch=meta.get("epoch", 0),
        episodes=meta.get("episodes", 0),
        wall_s=meta.get("wall_s", 0.0),
        threshold=threshold,
        best=meta.get("best"),
        last_eval=meta.get("last_eval"),
        checkpoints=checkpoints,
    )


def _latest_counts(run: Run, meta: dict[str, Any]) -> dict[str, Any]:
    """Counters of the last metrics row, if it is newer than meta.json."""
    rows = _tail_rows(run.metrics_path)
    row = rows[-1] if rows else {}
    if row.get("env_steps", -1) < meta.get("env_steps", 0):
        return {}
    names = {
        "env_steps": "env_steps",
        "epoch": "epoch",
        "wall_s": "wall_s",
        "episodes": "train/cnt/total_episodes",
    }
    return {field: row[name] for field, name in names.items() if row.get(name) is not None}


def _tail_rows(path: Path, tail_bytes: int = 65_536) -> list[dict[str, Any]]:
    """The last rows of a JSONL file, without reading all of a long file."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail_bytes))
        tail = file.read()
    if size > tail_bytes:
        tail = tail.partition(b"\n")[2]  # the first line is incomplete
    return parse_jsonl(tail, path)


def _searchable(run: RunSummary) -> str:
    solved = "solved" if run.solved else ""
    fields = (run.id, run.env_id, run.algo_id, run.variant, run.status, solved)
    return " ".join(str(field).lower() for field in fields)
