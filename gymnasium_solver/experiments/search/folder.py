"""The folder of a sweep: `runs/sweeps/<id>/`.

sweep.yaml      what is searched, resolved (Plan)
base.yaml       the config without the searched fields
journal.log     the trials, as an Optuna journal
trials/0007/    trial.yaml, and one run folder per seed
final/0007/     the same, on the fresh seeds of the final: choice0, ... choose, seed0, ... judge
final.json      which trials take part in the final
result.json     the winner;  report.md and PNG pictures for people
"""

import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.experiment import named
from gymnasium_solver.experiments.search.journal import Journal, Trial
from gymnasium_solver.experiments.search.plan import Plan, read_plan
from gymnasium_solver.paths import is_file, is_folder, user_path
from gymnasium_solver.runs.files import (
    dump_json,
    locked,
    read_json,
    read_pointer,
    write_atomic,
    write_pointer,
)
from gymnasium_solver.runs.run import LAST_RUN

SWEEPS = "sweeps"


class Sweep:
    """One sweep folder. Opening it reads nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.id = path.name

    @property
    def base_path(self) -> Path:
        return self.path / "base.yaml"

    @property
    def report_path(self) -> Path:
        return self.path / "report.md"

    def plan(self) -> Plan:
        path = self.path / "sweep.yaml"
        content, _ = read_file(path)
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: expected a sweep, not {content!r}")
        return read_plan(content, str(path))

    def write_plan(self, plan: Plan) -> None:
        text = dump_yaml(plan.model_dump(mode="json", exclude_none=True))
        write_atomic(self.path / "sweep.yaml", text.encode())

    def trial_dir(self, number: int) -> Path:
        return self.path / "trials" / f"{number:04d}"

    def run_dir(self, number: int, seed_index: int) -> Path:
        return self.trial_dir(number) / f"seed{seed_index}"

    def choice_dir(self, number: int, seed_index: int) -> Path:
        return self.path / "final" / f"{number:04d}" / f"choice{seed_index}"

    def final_dir(self, number: int, seed_index: int) -> Path:
        return self.path / "final" / f"{number:04d}" / f"seed{seed_index}"

    def trials(self) -> list[Trial]:
        """The trials as recorded now; also while the sweep runs."""
        if not (self.path / "journal.log").exists():
            return []
        with Journal(self.path, self.plan().directions) as journal:
            return journal.trials()

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the sweep, if it exists."""
        path = self.path / name
        return read_json(path, "Delete it; it is made again.") if is_file(path) else None

    def write(self, name: str, value: Any) -> None:
        write_atomic(self.path / name, dump_json(value))

    @property
    def is_running(self) -> bool:
        """Is a coordinator at work?"""
        try:
            with locked(self.path):
                return False
        except RunError:
            return True


def sweeps_root(runs: Path) -> Path:
    return runs / SWEEPS


def create(plan: Plan, base: str, label: str, runs: Path) -> Sweep:
    """A new folder with the plan and the config, complete before it gets its name."""
    root = sweeps_root(runs)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plan.name or label).strip("-.") or "sweep"
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    sweep = Sweep(root / f"{name}-{now}-{secrets.token_hex(2)}")
    try:
        temporary = root / f".{sweep.id}"
        temporary.mkdir(parents=True)
        draft = Sweep(temporary)
        write_atomic(draft.base_path, base.encode())
        draft.write_plan(plan)
        temporary.rename(sweep.path)
        write_pointer(root / LAST_RUN, sweep.id)
    except OSError as error:
        raise RunError(f"cannot create a sweep in {root}: {error.strerror or error}") from error
    return sweep


def is_sweep(path: Path) -> bool:
    return is_file(path / "sweep.yaml") and is_file(path / "base.yaml")


def sweep_ids(runs: Path) -> list[str]:
    """Ids of the sweeps, newest first."""
    root = sweeps_root(runs)
    if not is_folder(root):
        return []
    found = [path for path in root.iterdir() if path.name[0] not in "@." and is_sweep(path)]
    return [path.name for path in sorted(found, key=_created, reverse=True)]


def _created(path: Path) -> tuple[str, str]:
    match = re.search(r"-(\d{8}-\d{6})-[0-9a-f]{4}$", path.name)
    return (match[1] if match else "", path.name)


def find_sweep(ref: str, runs: Path) -> Sweep:
    """The sweep named by @last, an id, a unique part of one, or a path."""
    name, root = ref.rstrip("/"), sweeps_root(runs)
    if "/" in name and is_sweep(user_path(name)):
        return Sweep(user_path(name))
    ids = sweep_ids(runs)
    if not ids:
        raise RunError(
            f"there are no sweeps in {root}; start one with gsolve sweep CONFIG, or give --runs-dir"
        )
    if name == LAST_RUN:
        pointed = read_pointer(root / LAST_RUN)
        return Sweep(root / (pointed if pointed and is_sweep(root / pointed) else ids[0]))
    return Sweep(root / named(name, ids, "sweep", root))
