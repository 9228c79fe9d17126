"""The read API of runs, used by the command line, web pages and agents.

    for run in list_runs(runs_root()): print(run.id, run.status, run.best)
    curve = get_metrics("@last", ["val/roll/ep_rew/mean"])["val/roll/ep_rew/mean"]

Every `ref` is a reference as typed by a user (see `runs/resolve.py`) or a `Run`; `root` defaults to
`runs_root()`. Results are frozen dataclasses; `.to_dict()` converts them to JSON types. Light to
import.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import is_own_file
from gymnasium_solver.runs.alerts.alert import AlertRecord, alert_from_event, records
from gymnasium_solver.runs.curves import Curve, Row, curves, event_rows
from gymnasium_solver.runs.files import read_bytes, read_json
from gymnasium_solver.runs.jsonl import Tail, follow_jsonl, read_jsonl
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.runs.store import RunStore, read_config, read_summary
from gymnasium_solver.runs.summary import CheckpointSummary as CheckpointSummary
from gymnasium_solver.runs.summary import RunSummary as RunSummary
from gymnasium_solver.runs.summary import TestScore as TestScore
from gymnasium_solver.runs.summary import check_evaluation
from gymnasium_solver.runs.summary import test_score as test_score
from gymnasium_solver.runs.words import ScoreText

MEDIA_TYPES = {".mp4": "video/mp4", ".webp": "image/webp", ".gif": "image/gif"}
_TIMING = "train/sys/timing/"
OF_EVENTS = ("test/", "alert/")  # how names of metrics begin that are read from events.jsonl


def list_runs(
    root: Path | None = None, filter: str | Sequence[str] | None = None, sort_by: str | None = None
) -> list[RunSummary]:
    """All runs, newest first; `filter` and `sort_by` as in runs/select.py."""
    words = filter.split() if isinstance(filter, str) else list(filter or ())
    return RunStore(root or runs_root()).select(words, sort_by)


def get_run(
    ref: str | Run, root: Path | None = None, *, include_config: bool = False
) -> RunSummary:
    run = _resolve(ref, root)
    summary = read_summary(run)
    return dataclasses.replace(summary, config=get_config(run)) if include_config else summary


def get_meta(ref: str | Run, root: Path | None = None) -> dict[str, Any]:
    """The content of meta.json: command, versions, git, machine, resumes."""
    return _resolve(ref, root).meta()


def get_config(ref: str | Run, root: Path | None = None) -> dict[str, Any]:
    """The resolved config that the run was started with."""
    return read_config(_resolve(ref, root))


def tracker_urls(run: Run) -> dict[str, str]:
    """Where a run is shown by a tracker online, such as W&B, by the tracker's name."""
    found = {}
    for path in sorted((run.path / "trackers").glob("*.json")):
        with suppress(RunError):
            sink = read_json(path, "").get("sink")
            url = sink.get("url") if isinstance(sink, dict) else None
            if isinstance(url, str) and re.fullmatch(r"https?://[!-~]+", url):
                found[path.stem] = url
    return found


def acts_greedily(ref: str | Run, root: Path | None = None) -> bool:
    """Whether the run is judged by greedy actions: as its config says or, with
    `eval_deterministic: auto`, as its validations chose."""
    run = _resolve(ref, root)
    given = get_config(run).get("eval_deterministic", True)
    if given != "auto":
        return bool(given)
    meta = run.meta()
    known = [meta.get(name) for name in ("test", "best", "last_eval")]
    return next((b["greedy"] for b in known if isinstance(b, dict) and "greedy" in b), True) is True


def get_metrics(
    ref: str | Run, names: Iterable[str] | None = None, root: Path | None = None
) -> dict[str, Curve]:
    """Curves by metric name. `names` may contain wildcards (`train/opt/*`) and names of other
    systems (`rollout/ep_rew_mean`); None: all metrics."""
    return curves(get_rows(ref, root), names)


def get_rows(ref: str | Run, root: Path | None = None) -> list[Row]:
    """The rows of metrics.jsonl, then rows with the metrics of tests and alerts."""
    run = _resolve(ref, root)
    rows = read_jsonl(run.metrics_path)
    if any(row.get("env_steps") is None for row in rows):
        raise RunError(
            f"{run.metrics_path} has a row without env_steps. Delete it to use the others."
        )
    return [*rows, *event_rows(get_events(run), run.meta())]


def get_columns(ref: str | Run, names: Sequence[str], root: Path | None = None) -> list[Row]:
    """The rows that have one of these metrics, with env_steps and no others. Metrics of tests and
    alerts, which are read from the events, are in rows of their own at the end."""
    run = _resolve(ref, root)
    is_told = any(name.startswith(OF_EVENTS) for name in names)
    rows = get_rows(run) if is_told else read_jsonl(run.metrics_path)
    wanted = {*names} - {"env_steps"}
    kept = ("env_steps", *wanted)
    return [{n: row[n] for n in kept if n in row} for row in rows if wanted & row.keys()]


def get_events(
    ref: str | Run, kind: str | None = None, root: Path | None = None
) -> list[dict[str, Any]]:
    """Evaluations, checkpoints and other events in the order logged, optionally of one kind."""
    events = _checked(_resolve(ref, root).events_path)
    return [event for event in events if kind is None or event.get("kind") == kind]


def get_later_evaluations(ref: str | Run, root: Path | None = None) -> list[dict[str, Any]]:
    """What `gsolve eval` has measured since, as events of the stage `eval`."""
    return _checked(_resolve(ref, root).evaluations_path, kind="eval", stage="eval")


def _checked(path: Path, **fields: str) -> list[dict[str, Any]]:
    events = [event | fields for event in read_jsonl(path)]
    for event in events:
        if event.get("kind") == "eval":
            check_evaluation(event, path)
    return events


@dataclass(frozen=True)
class RunDetails:
    """What reports and pages tell of a run. Config, curves and videos are read when asked for."""

    run: Run
    summary: RunSummary
    meta: dict[str, Any]
    """meta.json; `versions`, `git`, `machine`, `command` and `resumed` have the types expected."""
    events: list[dict[str, Any]]

    @cached_property
    def config(self) -> dict[str, Any]:
        return get_config(self.run)

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Evaluations of all stages."""
        found = [event for event in self.events if event.get("kind") == "eval"]
        return [event | {"stage": event.get("stage", "val")} for event in found]

    def _of_stage(self, stage: str) -> list[dict[str, Any]]:
        return [event for event in self.evaluations if event["stage"] == stage]

    validations = property(lambda self: self._of_stage("val"))
    tests = property(lambda self: self._of_stage("test"))
    later = property(lambda self: self._of_stage("eval"))
    failed_tests = property(lambda self: self._of_stage("failed_test"))

    @cached_property
    def score(self) -> ScoreText:
        """How scores of this run are written."""
        return ScoreText(self.summary.threshold, [e.get("mean") for e in self.evaluations])

    @cached_property
    def alerts(self) -> list[AlertRecord]:
        """One record per rule, active ones first."""
        return records(filter(None, map(alert_from_event, self.events)))

    @property
    def changed(self) -> dict[str, tuple[Any, Any]] | None:
        """Fields that differ from the shipped config: (shipped, used). None if there is none."""
        changed = self.meta.get("changed")
        if not isinstance(changed, dict):
            return None
        return {
            name: (pair[0], pair[1])
            for name, pair in changed.items()
            if isinstance(pair, list) and len(pair) == 2
        }

    @cached_property
    def curves(self) -> dict[str, Curve]:
        return get_metrics(self.run)

    @property
    def time_shares(self) -> dict[str, float]:
        """Fraction of the training time by part: env, act, update, eval, ..."""
        return {
            name.removeprefix(_TIMING).removesuffix("_share"): values[-1]
            for name, points in self.curves.items()
            if name.startswith(_TIMING) and name.endswith("_share")
            if (values := [y for _, y in points if y is not None])
        }

    @property
    def videos(self) -> list[Path]:
        return get_videos(self.run)


def get_details(ref: str | Run, root: Path | None = None) -> RunDetails:
    run = _resolve(ref, root)
    given = run.meta()
    meta: dict[str, Any] = {name: {} for name in ("versions", "git", "machine")}
    meta |= {"command": [], "resumed": []}
    meta |= {n: v for n, v in given.items() if isinstance(v, type(meta.get(n, v)))}
    meta["command"] = [str(word) for word in meta["command"] if word is not None]
    meta["resumed"] = [
        entry
        for entry in meta["resumed"]
        if isinstance(entry, dict) and isinstance(entry.get("from_env_steps"), int)
    ]
    events = [*get_events(run), *get_later_evaluations(run)]
    return RunDetails(run, read_summary(run), meta, events)


def follow_metrics(ref: str | Run, cursor: str | None = None, root: Path | None = None) -> Tail:
    """The rows of metrics logged since `cursor`, for a reader that follows a run in training."""
    return follow_jsonl(_resolve(ref, root).metrics_path, cursor)


def follow_events(ref: str | Run, cursor: str | None = None, root: Path | None = None) -> Tail:
    """The events logged since `cursor`."""
    return follow_jsonl(_resolve(ref, root).events_path, cursor)


def get_alerts(ref: str | Run, root: Path | None = None) -> list[AlertRecord]:
    """The alerts that were raised while training, one record per rule, active ones first."""
    return records(filter(None, map(alert_from_event, get_events(ref, "alert", root))))


def get_videos(ref: str | Run, root: Path | None = None) -> list[Path]:
    folder = _resolve(ref, root).videos_dir
    files = [path for path in folder.iterdir() if is_own_file(path)] if folder.is_dir() else []
    return sorted(path for path in files if path.suffix.lower() in MEDIA_TYPES)


def get_log(ref: str | Run, lines: int | None = None, root: Path | None = None) -> list[str]:
    """The last `lines` of run.log, or all of it."""
    path = _resolve(ref, root).log_path
    if not path.is_file():
        return []
    text = read_bytes(path, "").decode(errors="replace").splitlines()
    return text if lines is None else text[max(0, len(text) - lines) :]


def _resolve(ref: str | Run, root: Path | None) -> Run:
    return resolve_run(ref, root or runs_root())
