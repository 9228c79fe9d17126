"""Changes of a run's config while it trains, as files in its folder.

    requests/<id>.json   a requested change: {"id", "changes", "source", "at_env_steps"}
    edits.jsonl          the changes made: {"id", "env_steps", "epoch", "source", "changed"}

Any process may request a change; the one that trains makes it between two epochs and deletes the
request. A resume from a checkpoint undoes the changes made after it and requests them again for the
same env steps, so that it repeats what happened.
"""

import secrets
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import files
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run, is_alive_here

BY_RULE = "rule"  # source of changes that a resume computes again by itself


@dataclass(frozen=True)
class Request:
    """A change that was asked for."""

    changes: dict[str, Any]
    source: str = "gsolve set"
    at_env_steps: int = 0  # make the change at the first epoch boundary at or after this clock
    id: str = field(default_factory=lambda: f"{time.time_ns():020d}-{secrets.token_hex(3)}")


@dataclass(frozen=True)
class Edit:
    """A change that was made, after `epoch` epochs and `env_steps` env steps."""

    id: str
    env_steps: int
    epoch: int
    changed: dict[str, list[Any]]  # [old, new] by field
    source: str


def ask_pause(run: Run, is_asked: bool) -> None:
    """Ask a running training to wait, or to go on. RunError if it does not run here."""
    if not is_alive_here(run.meta()):
        raise RunError(f"{run.id} is not training here, so that it cannot be paused")
    path = run.pause_path
    with files.writing("a request", path):
        if is_asked:
            files.write_atomic(path, b"")
        else:
            path.unlink(missing_ok=True)


def put_request(run: Run, request: Request) -> None:
    """Leave a request in the run's folder."""
    path = run.requests_dir / f"{request.id}.json"
    with files.writing("a request", path):
        path.parent.mkdir(exist_ok=True)
        files.write_atomic(path, files.dump_json(asdict(request)))


def pending_requests(run: Run) -> list[Request]:
    """Requests that were not answered yet, oldest first. RunError names a damaged one."""
    return [_read_request(path) for path in sorted(run.requests_dir.glob("*.json"))]


def drop_request(run: Run, request_id: str) -> None:
    (run.requests_dir / f"{request_id}.json").unlink(missing_ok=True)


def read_edits(run: Run) -> list[Edit]:
    """The changes made so far, oldest first."""
    try:
        return [
            Edit(
                id=str(row["id"]),
                env_steps=int(row["env_steps"]),
                epoch=int(row["epoch"]),
                changed={str(name): [old, new] for name, (old, new) in row["changed"].items()},
                source=str(row["source"]),
            )
            for row in read_jsonl(run.edits_path)
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{run.edits_path} is damaged: {error!r}. Delete it.") from None


def values_at_start(run: Run) -> dict[str, Any]:
    """The fields that were changed while the run trained, with the values it was started with."""
    return rewound(run, 0, is_last=False, overridden=()).undone


def add_edit(run: Run, edit: Edit) -> None:
    """Record a change; durable when this returns."""
    _write_edits(run, [*read_edits(run), edit])


@dataclass(frozen=True)
class Rewound:
    """The edits of a run as seen from a checkpoint."""

    kept: list[Edit]
    undone: dict[str, Any]  # values at the checkpoint of the fields that were changed after it
    again: list[Request]  # changes to repeat


def rewound(run: Run, env_steps: int, is_last: bool, overridden: Collection[str]) -> Rewound:
    """What a resume at `env_steps` undoes and repeats. An edit at exactly `env_steps` came after
    the checkpoint. Going back to an older checkpoint (`is_last` is False) repeats nothing; nor are
    fields repeated that the resume itself sets."""
    edits = read_edits(run)
    later = [edit for edit in edits if edit.env_steps >= env_steps]
    undone: dict[str, Any] = {}
    for edit in reversed(later):
        undone |= {name: old for name, (old, _) in edit.changed.items()}
    again = []
    for edit in later if is_last else []:
        changes = {name: new for name, (_, new) in edit.changed.items() if name not in overridden}
        if changes and not edit.source.startswith(BY_RULE):
            again.append(Request(changes, edit.source, edit.env_steps, edit.id))
    return Rewound([edit for edit in edits if edit.env_steps < env_steps], undone, again)


def rewind_edits(run: Run, to: Rewound) -> None:
    """Write the requests first: killed in between, the next resume does the same again."""
    for request in to.again:
        put_request(run, request)
    if run.edits_path.exists():
        _write_edits(run, to.kept)


def _write_edits(run: Run, edits: list[Edit]) -> None:
    lines = b"".join(files.json_bytes(files.jsonable(asdict(edit), where="edit")) for edit in edits)
    with files.writing("a change of the config", run.edits_path):
        files.write_atomic(run.edits_path, lines)


def _read_request(path: Path) -> Request:
    row = files.read_json(path, "Delete it.")
    changes, at = row.get("changes"), row.get("at_env_steps", 0)
    if not isinstance(changes, dict) or type(at) is not int or row.get("id") != path.stem:
        raise RunError(f"{path} is not a request to change fields. Delete it.")
    return Request(changes, str(row.get("source", "")), at, path.stem)
