"""The content of a run's report, read once from its files through `runs/query.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import AlertRecord
from gymnasium_solver.runs.curves import Curve, curves
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run

TIMING = "train/sys/timing/"
VIDEOS = (".mp4", ".webp", ".gif")


@dataclass(frozen=True)
class Facts:
    run: Run
    summary: RunSummary
    meta: dict[str, Any]
    validations: list[dict[str, Any]]
    failed_tests: list[dict[str, Any]]
    tests: list[dict[str, Any]]
    alerts: list[AlertRecord]
    curves: dict[str, Curve]
    time_shares: dict[str, float]
    """Fraction of the training time by part: env, act, update, eval, ..."""
    videos: list[Path]

    @property
    def name(self) -> str:
        return f"{self.summary.env_id}:{self.summary.variant or self.summary.algo_id}"

    @property
    def changed(self) -> dict[str, tuple[Any, Any]] | None:
        """Fields that differ from the shipped config: (shipped, used). None if there is none."""
        changed = self.meta.get("changed")
        if not isinstance(changed, dict):
            return None
        pairs = {name: pair for name, pair in changed.items() if isinstance(pair, list)}
        return {name: (pair[0], pair[1]) for name, pair in pairs.items() if len(pair) == 2}


def read_facts(run: Run) -> Facts:
    events = query.get_events(run)
    rows = query.get_rows(run)
    evaluations = [event for event in events if event.get("kind") == "eval"]
    stages: dict[str, list[dict[str, Any]]] = {"val": [], "failed_test": [], "test": []}
    for event in evaluations:
        stages.setdefault(str(event.get("stage", "val")), []).append(event)
    return Facts(
        run=run,
        summary=query.get_run(run, include_config=True),
        meta=_provenance(query.get_meta(run)),
        validations=stages["val"],
        failed_tests=stages["failed_test"],
        tests=stages["test"],
        alerts=query.get_alerts(run),
        curves=curves(rows),
        time_shares=_time_shares(rows),
        videos=_videos(run),
    )


def _provenance(meta: dict[str, Any]) -> dict[str, Any]:
    """meta.json without entries of other types than expected, which a damaged file may have."""
    kinds = {"versions": dict, "git": dict, "machine": dict, "changed": dict}
    kept = {name: value for name, value in meta.items() if name not in kinds}
    kept |= {name: meta[name] for name, kind in kinds.items() if isinstance(meta.get(name), kind)}
    command, resumed = meta.get("command"), meta.get("resumed")
    return kept | {
        "command": [str(word) for word in command] if isinstance(command, list) else [],
        "resumed": [
            entry
            for entry in (resumed if isinstance(resumed, list) else [])
            if isinstance(entry, dict) and isinstance(entry.get("from_env_steps"), int)
        ],
    }


def _time_shares(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> dict[str, float]:
    last: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(TIMING) and name.endswith("_share") and value is not None:
                last[name.removeprefix(TIMING).removesuffix("_share")] = finite(value) or 0.0
    return last


def _videos(run: Run) -> list[Path]:
    if not run.videos_dir.is_dir():
        return []
    return sorted(path for path in run.videos_dir.iterdir() if path.suffix.lower() in VIDEOS)
