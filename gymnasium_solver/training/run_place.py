"""Which folder a run goes to: `--run-name`, `--run-dir` and `--if-exists`.

A start that may be repeated, after a preemption or by a job array, is `--run-name NAME --if-exists
resume`: it trains, continues exactly, or says that the run is finished.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gymnasium_solver.config.load import config_dict, differences
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import RunError
from gymnasium_solver.lanes import current_lane
from gymnasium_solver.paths import is_file, is_folder, user_path
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.edits import values_at_start
from gymnasium_solver.runs.manage import archive, refuse_running
from gymnasium_solver.runs.run import JOB_FILES, Run, clear_run, is_run, is_unfinished
from gymnasium_solver.suggest import check_known
from gymnasium_solver.training.prepare import load_config

POLICIES = ("error", "resume", "restart", "new")


@dataclass(frozen=True)
class Place:
    """Where a run goes: its folder is `root / name`, or a new one in `root` without a name."""

    root: Path
    name: str | None = None
    is_resume: bool = False
    is_finished: bool = False
    note: str = ""

    @property
    def path(self) -> Path:
        return self.root / str(self.name)


def choose_place(
    root: Path,
    config: Config,
    *,
    name: str | None = None,
    folder: str | None = None,
    if_exists: str | None = None,
    trust: bool = False,
) -> Place:
    """The folder of a run called `name` in `root`, or of one in `folder`, after applying
    `if_exists` to one that exists; a new one without a name."""
    if name is None and folder is None:
        if if_exists is not None:
            raise RunError("--if-exists needs --run-name NAME or --run-dir DIR")
        return Place(root)
    if name is not None and folder is not None:
        raise RunError("give --run-name or --run-dir, not both")
    path = root / str(name) if folder is None else user_path(folder)
    if if_exists is not None:
        check_known(RunError, if_exists, POLICIES, f"--if-exists {if_exists}: unknown")
    if not (is_folder(path) or is_file(path)):
        return Place(path.parent, path.name) if folder else Place(root, name)
    return _existing(path.parent, path.name, if_exists or "error", config, trust)


def _existing(root: Path, name: str, policy: str, config: Config, trust: bool) -> Place:
    run = Run(root / name)
    if is_unfinished(run.path):
        return Place(root, name)
    if not is_run(run.path):
        raise RunError(f"{run.path} exists and is not a run; choose another name")
    if policy != "new":
        refuse_running([run])
    if policy == "error":
        raise RunError(
            f"{run.path} exists; add --if-exists resume (continue it), restart (archive it and "
            "train anew) or new (add a number to the name)"
        )
    if policy == "new":
        number = 2
        while (root / f"{name}-{number}").exists():
            number += 1
        return Place(root, f"{name}-{number}")
    if policy == "resume" and list_checkpoints(run.checkpoints_dir):
        _check_same(run, config, trust)
        is_finished = run.meta().get("status") == "finished"
        return Place(root, name, is_resume=not is_finished, is_finished=is_finished)
    if policy == "resume" and any((run.path / name).exists() for name in JOB_FILES):
        # Killed before its first checkpoint. The job that trains it anew is this very process,
        # whose files must stay where they are.
        clear_run(run.path)
        return Place(root, name)
    if policy == "resume" and current_lane() is not None:
        # The same in a stack, whose files are elsewhere. Moved first: a kill leaves no part of it.
        gone = root / f".{name}-{os.getpid()}"
        shutil.rmtree(run.path.rename(gone))
        return Place(root, name)
    # The same without a job, or to be trained anew.
    created = str(run.meta().get("created_at", ""))[:19]
    aside = Run(root / f"{name}-{re.sub('[^0-9]', '', created)}")
    run.path.rename(aside.path)
    return Place(root, name, note=f"the earlier run is now {archive([aside])[0]}")


def _check_same(run: Run, config: Config, trust: bool) -> None:
    """A resumed run keeps its config, so other flags now would be ignored: refuse them. What was
    changed while it trained (`gsolve set`) is no difference."""
    saved = config_dict(load_config(str(run.config_path), trust=trust)) | values_at_start(run)
    given = config_dict(config)
    if given.get("seed") is None:
        given["seed"] = saved.get("seed")
    # A run records what `auto` has become.
    other = [name for name, (_, now) in differences(saved, given).items() if now != "auto"]
    if other:
        raise RunError(
            f"{run.id} was started with other values of {', '.join(other)}. Continue it with "
            f"gsolve train --resume {run.id}, or train anew with --if-exists restart"
        )
