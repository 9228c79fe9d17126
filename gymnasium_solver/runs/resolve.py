"""Resolves what a user types to a run or a checkpoint.

A run: `@last`, an id, a unique part of an id, a path to its folder, or `hub:USER/REPO`. A run of a
sweep: `SWEEP/trials/0007/seed0`, where SWEEP is an id or a unique part of one. A checkpoint: a run,
alone or followed by `/@best`, `/@last`, `/<env_steps>` or `/step=N`. Where a run is used and not
changed, the name of an experiment or of a sweep stands for its best run.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import is_folder, user_path
from gymnasium_solver.runs import checkpoint
from gymnasium_solver.runs.files import read_pointer
from gymnasium_solver.runs.run import LAST_RUN, Run, is_run
from gymnasium_solver.suggest import did_you_mean

_SELECTOR = re.compile(r"@(?P<pointer>best|last)|(?:step=)?(?P<env_steps>[0-9]{1,30})")
SWEEPS = "sweeps"  # folder of all sweeps, in that of the runs
_TRIAL = re.compile(
    rf"(?:{SWEEPS}/)?(?P<sweep>[^/]+)/(?P<run>(?:trials|final)/[0-9]+/[a-z]+[0-9]+)"
)
# The place of an experiment, a sweep, or a trial of one.
_GROUP = re.compile(r"^(experiments|sweeps)/[^/]+$|(^|/)(trials|final)/[0-9]+$")
_NEWEST = 3  # runs that an error about another name shows
# Modules that stand far above this one, and are therefore imported by name.
_HUB = "gymnasium_solver.share.hub.pull"
_EXPERIMENTS = "gymnasium_solver.experiments.best"


class ResolvedCheckpoint(NamedTuple):
    run: Run
    path: Path
    label: str  # the selected checkpoint: "@best", "@last" or the env steps


def run_ids(root: Path) -> list[str]:
    """Ids of the runs under `root`, newest first."""
    if not is_folder(root):
        return []
    found = [p for p in root.iterdir() if p.name[0] not in "@." and is_run(p)]
    return [p.name for p in sorted(found, key=_created, reverse=True)]


def resolve_run(
    ref: str | Run, root: Path, *, allow_paths: bool = True, best_of: bool = False
) -> Run:
    """The run named by `ref`. `allow_paths=False` restricts a remote caller to `root`. `best_of`:
    an experiment or a sweep stands for its best run."""
    if isinstance(ref, Run):
        return ref
    if (remote := _remote(ref, root, allow_paths)) is not None:
        return remote[0]
    name = ref.rstrip("/")
    if not name or ".." in re.split(r"[/\\]", name):
        where = "; for runs elsewhere use --runs-dir or an absolute path" * allow_paths
        raise RunError(f"{ref!r} is not a run. Give @last, an id or a part of one{where}.")
    if "/" in name or "\\" in name or name == ".":
        path = user_path(name)
        if allow_paths and is_run(path):
            return Run(path.resolve() if path.name in ("", LAST_RUN) else path)
        if (trial := _TRIAL.fullmatch(name)) is not None:
            return _run_of_sweep(trial["sweep"], trial["run"], root)
        if best_of and (best := _best(name, root)) is not None:
            return best
        why = "names no run: paths are refused here"
        if allow_paths:
            why = "is not a run folder: it has no meta.json"
        raise RunError(f"{ref!r} {why}. {_existing(root, allow_paths)}")
    if name == LAST_RUN:
        return _last_run(root, allow_paths)
    return _named(name, root, best_of, allow_paths)


def _named(name: str, root: Path, best_of: bool, allow_paths: bool) -> Run:
    """The run of this id, the best run of the experiment of this id, or one by a part of an id."""
    if is_run(root / name) and not name.startswith("@"):
        return Run(root / name)
    if best_of and (run := _best(name, root)):
        return run
    try:
        return Run(root / _match_id(name, root, allow_paths))
    except RunError:
        run = _best(name, root, is_part=True) if best_of else None
        if run is None:
            raise
        return run


def _best(name: str, root: Path, is_part: bool = False) -> Run | None:
    """The best run of the experiment or sweep of this name, or with `is_part` of a longer name."""
    found: Run | None = import_module(_EXPERIMENTS).best_of(name, root, is_part)
    return found


def run_name(run: Run, root: Path) -> str:
    """What names a run among those of `root`: its id, of a sweep's run SWEEP/trials/0007/seed0."""
    place = run.path.absolute()
    sweeps = root.absolute() / SWEEPS
    return place.relative_to(sweeps).as_posix() if sweeps in place.parents else run.id


def resolve_checkpoint(
    ref: str | Run, root: Path, *, allow_paths: bool = True, default: str = checkpoint.BEST
) -> ResolvedCheckpoint:
    """The checkpoint named by `ref`; without a selector `default`, otherwise the last one."""
    if isinstance(ref, Run):
        return _default_checkpoint(ref, default)
    remote = _remote(ref, root, allow_paths)
    if remote is not None:
        run, selector = remote
    else:
        run_ref, selector = _split(ref, allow_paths)
        best_of = allow_paths and default == checkpoint.BEST  # the last one is to be continued
        run = resolve_run(run_ref, root, allow_paths=allow_paths, best_of=best_of)
    if selector is None:
        return _default_checkpoint(run, default)
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise RunError(
            f"{selector!r} in {ref!r} is not a checkpoint; expected @best, @last, "
            f"<env_steps> or step=N. {_checkpoints_text(run)}"
        )
    if pointer := match["pointer"]:
        return _pointed(run, pointer)
    env_steps = int(match["env_steps"])
    path = checkpoint.find_checkpoint(run.checkpoints_dir, env_steps)
    if path is None:
        raise RunError(
            f"{run.id} has no checkpoint at {env_steps} env steps. {_checkpoints_text(run)}"
        )
    return ResolvedCheckpoint(run, path, str(env_steps))


def _remote(ref: str, root: Path, allow_paths: bool) -> tuple[Run, str | None] | None:
    """The run and selector of "hub:USER/REPO/..."; None for a run of this machine."""
    if not ref.startswith("hub:"):
        return None
    if not allow_paths:
        raise RunError(f"{ref!r}: only runs of this machine can be named here.")
    run, selector = import_module(_HUB).hub_run(ref, root)
    return run, selector or None


def _split(ref: str, allow_paths: bool) -> tuple[str, str | None]:
    """(run, selector) of "RUN/selector"; also accepts a path from tab completion."""
    ref = ref.rstrip("/")
    if allow_paths and "/" in ref and is_run(user_path(ref)):
        return ref, None
    if _GROUP.search(ref):
        return ref, None
    run_ref, slash, selector = ref.rpartition("/")
    if not slash:
        return ref, None
    if run_ref.endswith("/checkpoints"):
        run_ref = run_ref.removesuffix("/checkpoints")
        selector = {checkpoint.BEST: "@best", checkpoint.LAST: "@last"}.get(selector, selector)
    is_path = "/" in run_ref and not is_run(user_path(run_ref))
    is_path = is_path or (allow_paths and is_folder(user_path(ref)))
    if is_path and not _SELECTOR.fullmatch(selector):
        return ref, None  # a path without a run: resolve_run reports it
    return run_ref, selector


def _match_id(name: str, root: Path, allow_paths: bool) -> str:
    if name.startswith("@"):
        raise RunError(f"{name!r} is not a run; the only name with @ is @last.")
    return meant(name, run_ids(root), "run", root, lambda: _existing(root, allow_paths))


def meant(
    name: str, ids: Sequence[str], what: str, root: Path, existing: Callable[[], str] = str
) -> str:
    """The one of some ids, newest first, that a user means: it, or the only one with this part.
    RunError says what there is."""
    matches = [i for i in ids if i == name] or [i for i in ids if name.lower() in i.lower()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        found = f"{len(matches)} {what}s: {_listing(matches)}"
        raise RunError(f"{name!r} matches {found}. Give a longer part of the id.")
    known = f"{what.capitalize()}s: {_listing(ids)}." if ids else "There are none yet."
    hint = did_you_mean(name, ids, n=3, cutoff=0.4) or existing() or known
    raise RunError(f"there is no {what} {name!r} in {root}. {hint}")


def _run_of_sweep(name: str, run: str, root: Path) -> Run:
    """A run inside a sweep, which is named like a run: @last, an id or a unique part of one."""
    sweeps = root / SWEEPS
    places = sweeps.iterdir() if is_folder(sweeps) else ()
    ids = sorted(place.name for place in places if place.name[0] not in "@.")
    pointed = read_pointer(sweeps / LAST_RUN) if name == LAST_RUN else None
    sweep = sweeps / meant(pointed or name, ids, "sweep", root)
    if not is_run(sweep / run):
        known = _listing(
            sorted(str(p.relative_to(sweep)) for p in sweep.glob("*/*/*") if is_run(p))
        )
        raise RunError(f"{sweep.name} has no run {run!r}; it has: {known or 'none'}.")
    return Run(sweep / run)


def _last_run(root: Path, allow_paths: bool) -> Run:
    """The run that @last points at, or the newest if the pointer is missing."""
    target = read_pointer(root / LAST_RUN)
    if target and is_run(root / target):
        return Run(root / target)
    ids = run_ids(root)
    if not ids:
        raise RunError(_existing(root, allow_paths))
    return Run(root / ids[0])


def _created(path: Path) -> tuple[str, str]:
    """Sort key, without opening a file: ids end in date-time-hex; renamed folders sort first."""
    match = re.search(r"-(\d{8}-\d{6})-[0-9a-f]{4}$", path.name)
    return (match[1] if match else "", path.name)


def _existing(root: Path, is_command: bool) -> str:
    """Which runs there are; `is_command`: with the flags that help at a command line."""
    ids = run_ids(root)
    if not ids:
        fix = "; start one with `gsolve train`, or give --runs-dir" * is_command
        return f"There are no runs in {root}{fix}."
    return f"Runs in {root}: {_listing(ids, _NEWEST, ' (gsolve runs)' * is_command)}."


def _listing(names: Sequence[str], most: int = 10, where: str = "") -> str:
    more = f" and {len(names) - most} more{where}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _default_checkpoint(run: Run, default: str) -> ResolvedCheckpoint:
    is_there = checkpoint.pointer_env_steps(run.checkpoints_dir, default) is not None
    return _pointed(run, default if is_there else checkpoint.LAST)


def _pointed(run: Run, pointer: str) -> ResolvedCheckpoint:
    env_steps = checkpoint.pointer_env_steps(run.checkpoints_dir, pointer)
    infos = checkpoint.list_checkpoints(run.checkpoints_dir)
    if env_steps is None and pointer == checkpoint.LAST and infos:  # only the pointer is lost
        env_steps = infos[-1].env_steps
    found = {info.env_steps: info.path for info in infos}
    path = None if env_steps is None else found.get(env_steps)
    if path is None:
        raise RunError(f"{run.id} has no @{pointer} checkpoint. {_checkpoints_text(run, infos)}")
    return ResolvedCheckpoint(run, path, f"@{pointer}")


def _checkpoints_text(run: Run, infos: list[checkpoint.CheckpointInfo] | None = None) -> str:
    infos = checkpoint.list_checkpoints(run.checkpoints_dir) if infos is None else infos
    if not infos:
        return "It has none yet."
    names = [f"{c.env_steps}{' @best' * c.is_best}{' @last' * c.is_last}" for c in infos]
    return f"It has: {_listing(names)}."
