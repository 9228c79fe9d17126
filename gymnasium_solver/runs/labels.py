"""Tags and a note of a run, in its `labels.json`. The user writes them; training never does."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import dump_json, read_json, write_atomic
from gymnasium_solver.runs.run import Run

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}")
LONGEST_NOTE = 10_000


@dataclass(frozen=True)
class Labels:
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(run: Run) -> Labels:
    """The labels of a run; empty ones if it has none. RunError if the file is damaged."""
    if not run.labels_path.exists():
        return Labels()
    content = read_json(run.labels_path, "Delete it to start with no tags and no note.")
    tags, note = content.get("tags", []), content.get("note", "")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RunError(f"{run.labels_path}: tags is {_shown(tags)}, expected a list of texts.")
    if not isinstance(note, str):
        raise RunError(f"{run.labels_path}: note is {_shown(note)}, expected a text.")
    return Labels(tuple(tags), note)


def change_tags(run: Run, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Labels:
    """Add and remove tags; they stay in the order in which they were added."""
    for tag in (new := list(add)):
        if not _TAG.fullmatch(tag):
            raise RunError(
                f"{tag!r} is not a tag: expected up to 64 letters, digits and . _ : / + -, "
                "beginning with a letter or digit"
            )
    old, gone = read_labels(run), set(remove)
    if missing := gone - set(old.tags) - set(new):
        raise RunError(f"{run.id} has no tag {', '.join(sorted(missing))}")
    tags = tuple(tag for tag in dict.fromkeys([*old.tags, *new]) if tag not in gone)
    return _write(run, Labels(tags, old.note))


def set_note(run: Run, note: str) -> Labels:
    """Replace the note; an empty text removes it."""
    if len(note) > LONGEST_NOTE:
        raise RunError(f"a note has at most {LONGEST_NOTE:,} characters, this one {len(note):,}")
    return _write(run, Labels(read_labels(run).tags, note.strip()))


def _write(run: Run, labels: Labels) -> Labels:
    write_atomic(run.labels_path, dump_json({"tags": list(labels.tags), "note": labels.note}))
    return labels


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:60]
