"""What a user does to runs: tags, a note, renaming, archiving, removing, pruning. Training
never does.

Tags and the note of a run are in its `labels.json`. Archived runs are moved into
`<runs>/.archive/`, where listings do not look; `restore` moves them back. Pruning deletes
checkpoints, never the best or the last one of a run.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import files
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.run import LAST_RUN, Run, check_run_name, is_alive_here, is_run
from gymnasium_solver.runs.summary import summary_of

ARCHIVE = ".archive"
LONGEST_NOTE = 10_000
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}")


@dataclass(frozen=True)
class Labels:
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(run: Run) -> Labels:
    """The labels of a run; empty ones if it has none. RunError if the file is damaged."""
    if not run.labels_path.exists():
        return Labels()
    content = files.read_json(run.labels_path, "Delete it to start with no tags and no note.")
    tags, note = content.get("tags", []), content.get("note", "")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RunError(f"{run.labels_path}: tags is {tags!r:.60}, expected a list of texts.")
    if not isinstance(note, str):
        raise RunError(f"{run.labels_path}: note is {note!r:.60}, expected a text.")
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
    files.write_atomic(run.labels_path, files.dump_json(asdict(labels)))
    return labels


# -- archiving, removing, pruning ------------------------------------------------------------------


@dataclass(frozen=True)
class Spare:
    """A checkpoint that pruning would delete."""

    run: Run
    path: Path
    env_steps: int
    score: float | None
    size: int  # bytes


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def refuse_running(runs: Iterable[Run]) -> None:
    """RunError if a run is being trained in a process on this machine."""
    for run in runs:
        try:
            meta = run.meta()
        except RunError:
            continue  # a broken run may be removed
        if is_alive_here(meta):
            raise RunError(f"{run.id} is still running in process {meta['pid']}; stop it first")


def remove(runs: Iterable[Run]) -> None:
    """Delete the folders of runs for good."""
    for run in (every := list(runs)):
        if not is_run(run.path):
            raise RunError(f"{run.path} is not a run folder; nothing was removed")
    refuse_running(every)
    for run in every:
        shutil.rmtree(run.path)
        _drop_pointer(run)


def rename(run: Run, name: str) -> Path:
    """Give a run another name, which is that of its folder, and return the new folder."""
    check_run_name(name)
    refuse_running([run])
    if experiment := summary_of(run.path, run.meta(), []).experiment:
        raise RunError(f"{run.id}: the experiment {experiment} finds it by this name")
    target = run.path.parent / name
    if target.exists():
        raise RunError(f"{name} exists already; choose another name")
    was_last = files.read_pointer(run.path.parent / LAST_RUN) == run.id
    run.path.rename(target)
    if was_last:
        files.write_pointer(run.path.parent / LAST_RUN, name)
    return target


def archive(runs: Iterable[Run]) -> list[Path]:
    """Move runs into the archive and return their new folders."""
    refuse_running(every := list(runs))
    return [_move(run, run.path.parent / ARCHIVE) for run in every]


def restore(runs: Iterable[Run]) -> list[Path]:
    """Move archived runs back."""
    return [_move(run, run.path.parent.parent) for run in runs]


def _move(run: Run, folder: Path) -> Path:
    target = folder / run.id
    if target.exists():
        raise RunError(f"{target} exists already; move it away first")
    folder.mkdir(exist_ok=True)
    run.path.rename(target)
    _drop_pointer(run)
    return target


def _drop_pointer(run: Run) -> None:
    """`@last` must not point to a folder that is gone."""
    pointer = run.path.parent / LAST_RUN
    if files.read_pointer(pointer) == run.id:
        pointer.unlink()


def spare_checkpoints(runs: Iterable[Run], keep_top: int) -> list[Spare]:
    """The checkpoints beyond the `keep_top` best ones of each run; best and last always stay."""
    if keep_top < 0:
        raise RunError(f"--keep-top is {keep_top}, expected 0 or more")
    spare = []
    for run in runs:
        found = list_checkpoints(run.checkpoints_dir)
        scored = [c for c in found if c.score is not None]
        top = sorted(scored, key=lambda c: (c.score or 0.0, c.env_steps), reverse=True)[:keep_top]
        kept = {c.env_steps for c in (*top, *(c for c in found if c.is_best or c.is_last))}
        spare += [
            Spare(run, c.path, c.env_steps, c.score, size_of(c.path))
            for c in found
            if c.env_steps not in kept
        ]
    return spare


def prune(spare: Iterable[Spare]) -> None:
    every = list(spare)
    refuse_running({one.run.id: one.run for one in every}.values())
    for one in every:
        shutil.rmtree(one.path)
