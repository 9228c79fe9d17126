"""The best run of an experiment or a sweep, which its name stands for: `gsolve play EXPERIMENT`.

Of an experiment the seed with the best validation counts; of a sweep the winner of its final, and
of that the seed with the best validation. The test has no part in the choice.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.experiment import FILE, FOLDER, experiment_ids, load
from gymnasium_solver.experiments.search.sweep_folder import Sweep, is_sweep, sweep_ids, view
from gymnasium_solver.paths import is_file, user_path
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.resolve import SWEEPS
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.runs.summary import RunSummary

_told: set[str] = set()


def best_of(name: str, root: Path, is_part: bool = False) -> Run | None:
    """The best run of what this names, said on stderr; None if it is neither an experiment nor a
    sweep nor a trial. `is_part`: also a unique part of an id."""
    path = group_folder(name, root, is_part)
    if path is None:
        return None
    if is_sweep(path):
        what, folders = sweep_winner(Sweep(path), root)
    elif is_file(path / FILE):
        what, folders = "", load(path).folders()
    else:
        what, folders = "", sorted(path.glob("[!@.]*"))
    chosen = _best(folders)
    if chosen is None:
        raise RunError(f"{name} has no run with a checkpoint and a validation yet")
    place = Path(chosen.path)
    shown = str(place.relative_to(path)) if place.is_relative_to(path) else chosen.id
    text = f"{name}: {what}seed {chosen.seed}, best validation {chosen.best_score:.6g}: {shown}"
    if text not in _told:
        _told.add(text)
        print(text, file=sys.stderr)
    return Run(place)


def group_folder(name: str, root: Path, is_part: bool = False) -> Path | None:
    """The folder of an experiment, a sweep or a trial."""
    inside = [user_path(name)] if "/" in name else []
    for path in (*inside, root / FOLDER / name, root / SWEEPS / name, root / name):
        is_trial = path.parent.name in ("trials", "final") and is_sweep(path.parent.parent)
        if is_sweep(path) or is_file(path / FILE) or (is_trial and path.is_dir()):
            return path
    if not is_part:
        return None
    matches = [root / FOLDER / one for one in experiment_ids(root) if name.lower() in one.lower()]
    matches += [root / SWEEPS / one for one in sweep_ids(root) if name.lower() in one.lower()]
    if len(matches) > 1:
        names = ", ".join(match.name for match in matches[:8])
        raise RunError(f"{name!r} matches {len(matches)} experiments: {names}. Give a longer part.")
    return matches[0] if matches else None


def sweep_winner(sweep: Sweep, root: Path) -> tuple[str, list[Path]]:
    """What won, and its runs: those of the final, or else of the search."""
    result = sweep.read("result.json") or {}
    if result.get("run"):  # the agent of a population
        return "the winner, ", [Path(str(result["run"]))]
    number = result.get("winner")
    if number is None:
        number = view(str(sweep.path), root).winner
    for folder in (sweep.final_dir(number, 0).parent, sweep.trial_dir(number)):
        found = [path for path in sorted(folder.glob("seed*")) if is_run(path)]
        if any((path / "checkpoints" / "last").exists() for path in found):
            return f"the winner, trial {number}, ", found
    return "", []


def _best(folders: Sequence[Path]) -> RunSummary | None:
    runs = [get_run(Run(folder)) for folder in folders if is_run(folder)]
    known = [run for run in runs if run.checkpoints and run.best_score is not None]
    if len({run.env_id for run in known}) > 1:
        names = ", ".join(run.id for run in known[:8])
        raise RunError(f"these runs are of several environments, give one of them: {names}")
    return max(known, key=lambda run: run.best_score or 0.0, default=None)
