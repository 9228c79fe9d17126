"""What is done to runs: `tag`, `note`, `archive`, `rm`, `prune`, and `set` while one trains."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb, yaml_values
from gymnasium_solver.config.yaml_file import value_text
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import manage
from gymnasium_solver.runs.edits import ask_pause, pending_requests, read_edits
from gymnasium_solver.runs.files import picked
from gymnasium_solver.runs.resolve import resolve_run, run_ids
from gymnasium_solver.runs.run import Run


@verb("""
tag: Add tags to a run. gsolve runs tag=TAG lists the runs that have one.

RUN
[TAG...]             tags to add; none: show them
--remove TAG...      tags to remove
--json --runs-dir

examples:
  gsolve tag @last paper baseline
  gsolve tag a1b2 --remove baseline
  gsolve tag a1b2
""")
def tag(args: Args) -> None:
    if both := set(args.tags) & set(args.remove):
        raise UsageError(f"{', '.join(sorted(both))}: to be added and removed at once")
    run = args.resolved_run()
    is_change = args.tags or args.remove
    labels = (
        manage.change_tags(run, args.tags, args.remove) if is_change else manage.read_labels(run)
    )
    _tell_labels(args, run, labels, ", ".join(labels.tags) or "no tags")


@verb("""
note: Write a note to a run; it replaces an earlier one. Without a text the note is shown.

RUN
[TEXT...]     the note
--remove      remove the note
--json --runs-dir

examples:
  gsolve note @last "wider net, stable after 2M steps"
  gsolve note a1b2
  gsolve note a1b2 --remove
""")
def note(args: Args) -> None:
    if args.texts and args.remove:
        raise UsageError("give a text or --remove, not both")
    run = args.resolved_run()
    is_change = args.texts or args.remove
    labels = manage.set_note(run, " ".join(args.texts)) if is_change else manage.read_labels(run)
    _tell_labels(args, run, labels, printable(labels.note) or "no note")


def _tell_labels(args: Args, run: Run, labels: manage.Labels, text: str) -> None:
    data = {"run": run.id, "tags": list(labels.tags), "note": labels.note}
    out.tell(args, data, f"{run.id}: {text}")


@verb("""
archive: Move runs into .archive in the runs folder, out of the listing of gsolve runs. Without
--yes only what would be moved is shown.

[RUN...]
--restore     move archived runs back
--list        list the archived runs
--yes         move them
--runs-dir

examples:
  gsolve archive a1b2 c3d4 --yes
  gsolve archive --list
  gsolve archive --restore a1b2 --yes
""")
def archive(args: Args) -> None:
    root = args.root()
    if args.list:
        print("\n".join(run_ids(root / manage.ARCHIVE)) or f"no archived runs in {root}")
        return
    if not args.runs:
        raise UsageError("name the runs to archive, or use --list. See gsolve archive --help")
    runs = _named(args.runs, root / manage.ARCHIVE if args.restore else root)
    move, words = (manage.restore, "restore") if args.restore else (manage.archive, "archive")
    _do(args, words, lambda: move(runs), [run.id for run in runs])
    if not args.yes:
        print("nothing was moved; add --yes to move them")


@verb("""
rm: Delete runs for good. Without --yes only the runs and their sizes are shown.

RUN...
--yes     delete them
--runs-dir

examples:
  gsolve rm a1b2 c3d4
  gsolve rm a1b2 --yes
""")
def rm(args: Args) -> None:
    runs = _named(args.runs, args.root())
    lines = [f"{out.file_size(manage.size_of(run.path))}  {run.id}" for run in runs]
    _do(args, "delete", lambda: manage.remove(runs), lines)
    if not args.yes:
        print("nothing was deleted; add --yes to delete, or use gsolve archive to keep them aside")


@verb("""
prune: Delete checkpoints of all runs, or of those named. The best and the last one of each run
stay, and the N with the highest validation. Without --yes nothing is deleted.

[RUN...]           default: all runs
--keep-top INT=0   further checkpoints to keep
--yes              delete them
--runs-dir

examples:
  gsolve prune --keep-top 3
  gsolve prune a1b2 --keep-top 0 --yes
""")
def prune(args: Args) -> None:
    root = args.root()
    runs = [resolve_run(ref, root) for ref in args.runs or run_ids(root)]
    spare = manage.spare_checkpoints(runs, args.keep_top)
    lines = [f"{out.file_size(one.size)}  {one.run.id}/{one.env_steps}" for one in spare]
    _do(args, "delete", lambda: manage.prune(spare), lines)
    total = out.file_size(sum(one.size for one in spare))
    print(f"{len(spare)} checkpoints of {len(runs)} runs, {total}")
    if spare and not args.yes:
        print("nothing was deleted; add --yes to delete")


def _named(refs: Iterable[str], root: Path) -> list[Run]:
    """The runs that are named, each once, none of which trains."""
    runs = list({run.id: run for run in (resolve_run(ref, root) for ref in refs)}.values())
    manage.refuse_running(runs)
    return runs


def _do(args: Args, word: str, work: Callable[[], object], lines: Iterable[str]) -> None:
    """Do it with --yes, and print a line for each thing that it was or would be done to."""
    if args.yes:
        work()
    for line in lines:
        print(f"{f'{word}d' if args.yes else f'would {word}'}  {line}")


@verb("""
set: Change fields of a run while it trains. They are checked at once, take effect at the
next epoch, and are recorded in the run. Saving its config.yaml in an editor does the
same. Without FIELD=VALUE: list the changes of the run.

RUN
[FIELD=VALUE...]     as in the config's YAML
--pause              let it wait at the end of its epoch
--go-on              end the pause
--at ENV_STEPS       not before this many env steps
--wait SECONDS=10    how long to wait until it takes effect
--source NAME        internal: who asks, as recorded in the run
--trust --json --runs-dir

examples:
  gsolve set @last policy_lr=1e-4
  gsolve set @last ent_coef=0 "clip_range={start: 0.2, end: 0.1}"
  gsolve set a1b2 max_env_steps=2e6 --at 500_000
  gsolve set @last --pause
  gsolve set @last
""")
def set_fields(args: Args) -> int:
    """Exit code 1 if the training process refused the change."""
    run = args.resolved_run()
    if args.pause or args.go_on:
        if args.values or args.pause == args.go_on:
            raise UsageError("--pause and --go-on stand alone")
        ask_pause(run, args.pause)
        text = "waits at the end of its epoch" if args.pause else "goes on"
        out.tell(args, {"run": run.id, "paused": args.pause}, f"{run.id}: {text}")
        return 0
    if not args.values:
        _show_changes(args, run)
        return 0
    at_env_steps = args.at or 0
    if wrong := [text for text in args.values if not re.match(r"\s*[^=\s][^=]*=", text)]:
        raise UsageError(f"'{wrong[0]}': expected FIELD=VALUE, such as policy_lr=1e-4")
    given = yaml_values(args.values, "set")
    changes = {name.replace("-", "_"): value for name, value in given.items()}

    from gymnasium_solver.training.live import request_edit, wait_for

    source = {} if args.source is None else {"source": args.source}
    request = request_edit(run, changes, at_env_steps=at_env_steps, trust=args.trust, **source)
    answer = None if at_env_steps else wait_for(run, request, args.wait)
    result: dict[str, Any] = {"run": run.id, "id": request.id, "requested": changes}
    if answer is None:
        result |= {"applied": False}
        when = f"at {at_env_steps:,} env steps" if at_env_steps else "at the next epoch"
        text = f"requested; takes effect {when}"
    elif answer.refused is not None:
        result |= {"applied": False, "refused": answer.refused}
        text = f"refused: {answer.refused}"
    else:
        clock = {"env_steps": answer.env_steps, "epoch": answer.epoch}
        result |= {"applied": True, "changed": answer.changed, **clock}
        fields = ", ".join(f"{name} = {value_text(new)}" for name, new in answer.changed.items())
        text = f"{fields or 'nothing changed'} since env step {answer.env_steps:,}"
    out.tell(args, result, f"{run.id}: {text}")
    return 1 if answer is not None and answer.refused is not None else 0


def _show_changes(args: Args, run: Run) -> None:
    """Print the changes made and those requested."""
    edits, requests = read_edits(run), pending_requests(run)
    lines = [
        f"env step {edit.env_steps:>12,}  {name}: {value_text(old)} → {value_text(new)}  "
        f"({edit.source})"
        for edit in edits
        for name, (old, new) in edit.changed.items()
    ]
    lines += [
        f"requested at {request.at_env_steps:,} env steps  {name}: {value_text(value)}"
        for request in requests
        for name, value in request.changes.items()
    ]
    data = {
        "run": run.id,
        "edits": [picked(edit, "env_steps epoch source changed") for edit in edits],
        "requests": [picked(one, "at_env_steps source changes") for one in requests],
    }
    out.tell(args, data, "\n".join(lines or [f"{run.id} was not changed while it trained"]))
