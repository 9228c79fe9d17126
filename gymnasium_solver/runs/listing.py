"""Summaries of all runs in a folder, quickly: a run that has not changed is taken from an index.

A finished run costs three looks at its files, not a dozen reads. A run that is training is read
anew each time, since its process may have ended meanwhile.
"""

import dataclasses
import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymnasium_solver import __version__
from gymnasium_solver.paths import is_folder
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.index import Index, Stamp, stamp
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.summary import RunSummary

INDEX, CONFIGS = ".index.json", ".configs.json"
_OWN = ("id", "path", "config")  # not stored: they depend on where the folder is
_NAMES = [field.name for field in dataclasses.fields(RunSummary) if field.name not in _OWN]
_STATUS, _CHECKPOINTS = _NAMES.index("status"), _NAMES.index("checkpoints")
_DATE = re.compile(r"-(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-[0-9a-f]{4}$")
LASTING = ("finished", "interrupted", "failed", "killed")


def summaries(root: Path, read: Callable[[Run], RunSummary]) -> list[RunSummary]:
    """The summaries of all runs under `root`, newest first. `read` makes one from the folder."""
    with _without_collection():
        return _summaries(root, read)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Thousands of new objects, none of them garbage, would make the collector look at all of them
    again and again: a fifth of the time of a listing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _summaries(root: Path, read: Callable[[Run], RunSummary]) -> list[RunSummary]:
    # A killed run is known as such on its own machine alone.
    version = f"{__version__} {machine.hostname()} {','.join(_NAMES)}"
    index = Index(root, INDEX, version)
    found = []
    folder = str(root)
    for name in folders(root):
        files = run_stamp(f"{folder}/{name}")
        if files is None:
            continue
        stored = index.get(name, files)
        if stored is None or (
            stored[_STATUS] == "killed" and stored[-1] != metrics_stamp(folder, name)
        ):
            summary = read(Run(root / name))
            if summary.status in LASTING:
                index.put(name, files, _to_store(summary, metrics_stamp(folder, name)))
        else:
            summary = _from_stored(root, name, stored)
        found.append(summary)
    index.keep(summary.id for summary in found)
    index.save()
    found.sort(key=created_key, reverse=True)
    return found


def configs(
    root: Path, ids: list[str], read: Callable[[Run], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The configs of runs under `root`, by id. `read` reads one from the folder."""
    index = Index(root, CONFIGS, __version__)
    found: dict[str, dict[str, Any]] = {}
    for run_id in ids:
        file = stamp(f"{root}/{run_id}/config.yaml")
        config = index.get(run_id, file)
        if config is None:
            config = read(Run(root / run_id))
            index.put(run_id, file, config)
        found[run_id] = config
    index.keep(folders(root))
    index.save()
    return found


def folders(root: Path) -> list[str]:
    if not is_folder(root):
        return []
    with os.scandir(root) as entries:
        return [entry.name for entry in entries if entry.name[0] not in "@."]


def run_stamp(run: str) -> Stamp | None:
    """Of what a summary depends on: meta.json, the run's folder, in which labels.json is replaced,
    and the checkpoints. None if this is not a run."""
    return stamp(f"{run}/meta.json", run, f"{run}/checkpoints")


def metrics_stamp(folder: str, name: str) -> Stamp | None:
    """The counts of a killed run are those of its last row of metrics."""
    return stamp(f"{folder}/{name}/metrics.jsonl")


def _to_store(summary: RunSummary, metrics: Stamp | None) -> list[Any]:
    values = [getattr(summary, name) for name in _NAMES]
    values[_CHECKPOINTS] = [list(c.values()) for c in summary.checkpoints]
    return [*values, metrics if summary.status == "killed" else None]


def _from_stored(root: Path, name: str, values: list[Any]) -> RunSummary:
    summary = object.__new__(RunSummary)  # without __init__, which is slow in a frozen dataclass
    fields = dict(zip(_NAMES, values, strict=False))
    fields["checkpoints"] = [
        {"env_steps": env_steps, "best": best, "last": last, "score": score}
        for env_steps, best, last, score in values[_CHECKPOINTS]
    ]
    summary.__dict__.update(fields, id=name, path=f"{root}{os.sep}{name}", config=None)
    return summary


def created_key(run: RunSummary) -> tuple[str, str]:
    """Sort key: when the run was created; of a broken run its id may tell."""
    if run.created_at:
        return run.created_at, run.id
    date = _DATE.search(run.id)
    if date is None:
        return "", run.id
    year, month, day, *clock = date.groups()
    return f"{year}-{month}-{day}T{':'.join(clock)}", run.id
