"""The folder of a sweep: `runs/sweeps/<id>/`.

sweep.yaml      what is searched, resolved (Plan)
base.yaml       the config without the searched fields
journal.log     the trials, as an Optuna journal
trials/0007/    trial.yaml, and one run folder per seed
final/0007/     the same, on the fresh seeds of the final: choice0, ... choose, seed0, ... judge
final.json      which trials take part in the final
result.json     the winner;  report.md and PNG pictures for people
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gymnasium_solver.config.code import code_named, untrusted
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.experiment import newest_first, slug
from gymnasium_solver.experiments.search.journal import STATES, Journal, Trial
from gymnasium_solver.experiments.search.plan import Plan, Prepared, read_plan
from gymnasium_solver.experiments.search.ranking import front, importances, ranked
from gymnasium_solver.experiments.statistics import Estimate
from gymnasium_solver.paths import is_file, user_path
from gymnasium_solver.runs import files
from gymnasium_solver.runs.files import is_locked, write_atomic
from gymnasium_solver.runs.machine import is_made_here, signature
from gymnasium_solver.runs.resolve import SWEEPS, meant
from gymnasium_solver.runs.run import LAST_RUN, runs_root

SIGNATURE = "signature.json"  # who made a sweep that names code (runs/machine.py)


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

    def code(self) -> list[str]:
        """Modules that its config and its plan name."""
        files = (read_file(self.base_path)[0], read_file(self.path / "sweep.yaml")[0])
        return code_named({"files": files})

    def check_trust(self, trust: bool = False) -> None:
        """TrustError if the sweep was not made here and names code to import. With `trust` it is
        signed as the user's own."""
        code = self.code()
        if code and trust:
            self.write(SIGNATURE, {"id": self.id, "signature": signature(self.id, code)})
        elif code and not is_made_here(self.read(SIGNATURE) or {}, code):
            raise untrusted(str(self.path), code)

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
        return files.read_json(path, "Delete it; it is made again.") if is_file(path) else None

    def write(self, name: str, value: Any) -> None:
        write_atomic(self.path / name, files.dump_json(value))

    @property
    def is_running(self) -> bool:
        """Is a coordinator at work?"""
        return is_locked(self.path)


def sweeps_root(runs: Path) -> Path:
    return runs / SWEEPS


def create_sweep(prepared: Prepared, runs: Path) -> Sweep:
    """A new folder with the plan and the config, complete before it gets its name. A given name is
    the id, as of experiments: the same sweep is continued, another one is refused."""
    root, given = sweeps_root(runs), prepared.plan.name
    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    sweep = Sweep(root / (slug(given, "sweep") if given else f"{slug(prepared.label)}-{now}"))
    if is_sweep(sweep.path):
        if sweep.plan() == prepared.plan and sweep.base_path.read_text() == prepared.base:
            return sweep
        raise RunError(
            f"the sweep {sweep.id} exists and searches something else. Continue it with "
            f"gsolve sweep --resume {sweep.id}, or choose another name"
        )
    try:
        temporary = root / f".{sweep.id}"
        temporary.mkdir(parents=True)
        draft = Sweep(temporary)
        write_atomic(draft.base_path, prepared.base.encode())
        draft.write_plan(prepared.plan)
        if code := draft.code():
            draft.write(SIGNATURE, {"id": sweep.id, "signature": signature(sweep.id, code)})
        temporary.rename(sweep.path)
        files.write_pointer(root / LAST_RUN, sweep.id)
    except OSError as error:
        raise RunError(f"cannot create a sweep in {root}: {error.strerror or error}") from error
    return sweep


def is_sweep(path: Path) -> bool:
    return is_file(path / "sweep.yaml") and is_file(path / "base.yaml")


def sweep_ids(runs: Path) -> list[str]:
    return newest_first(sweeps_root(runs), "sweep.yaml", "base.yaml")


def find_sweep(ref: str, runs: Path, *, allow_paths: bool = True) -> Sweep:
    """The sweep named by @last, an id, a unique part of one, or a path."""
    name, root = ref.rstrip("/"), sweeps_root(runs)
    if allow_paths and "/" in name and is_sweep(user_path(name)):
        return Sweep(user_path(name))
    ids = sweep_ids(runs)
    if not ids:
        raise RunError(
            f"there are no sweeps in {root}; start one with gsolve sweep CONFIG, or give --runs-dir"
        )
    if name == LAST_RUN:
        pointed = files.read_pointer(root / LAST_RUN)
        return Sweep(root / (pointed if pointed and is_sweep(root / pointed) else ids[0]))
    return Sweep(root / meant(name, ids, "sweep", root))


def trained_values(sweep: Sweep, plan: Plan, trial: Trial) -> dict[str, Any]:
    """The values that a trial was trained with. The config's own may lie outside the ranges, and
    are read from the config that was trained."""
    values = plan.space().decode(trial.latents)
    path = sweep.trial_dir(trial.number) / "trial.yaml"
    if not trial.attrs.get("own") or not is_file(path):
        return values
    content, _ = read_file(path)
    for name in values:
        value: Any = content
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        values[name] = values[name] if value is None else value
    return values


def result_of(plan: Plan, trials: Sequence[Trial], winner: int | None = None) -> dict[str, Any]:
    """What the trials came to, without a final. `winner`: the best of them unless given."""
    if winner is None and (best := ranked(plan, trials)):
        winner = best[0].number
    states = Counter(trial.state for trial in trials)
    return {
        "metric": plan.metric.name,
        "goal": plan.metric.goal,
        "trials": len(trials),
        "states": {state: states[state] for state in STATES},
        "winner": winner,
        "params": {} if winner is None else plan.space().decode(trials[winner].latents),
        "is_own": winner is not None and bool(trials[winner].attrs.get("own")),
        "final": [],
        "seeds": [],
        "verdict": None,
        "env_steps": sum(int(trial.attrs.get("env_steps") or 0) for trial in trials),
    }


@dataclass(frozen=True)
class View:
    """A sweep as it is now."""

    sweep: Sweep
    plan: Plan
    trials: list[Trial]
    result: dict[str, Any] | None

    @cached_property
    def status(self) -> str:
        """running, finished, or stopped: gsolve sweep --resume continues it."""
        if self.sweep.is_running:
            return "running"
        is_over = sum(trial.is_over for trial in self.trials) >= (self.plan.trials or 0)
        return "finished" if self.result and is_over else "stopped"

    @property
    def winner(self) -> int:
        """The trial to use: that of the final, or the best so far."""
        if self.result and self.result.get("winner") is not None:
            return int(self.result["winner"])
        best = ranked(self.plan, self.trials)
        if not best:
            raise RunError(f"{self.sweep.id} has no trial with a value yet")
        return best[0].number

    def rows(self) -> list[dict[str, Any]]:
        """The trials, best first, then those without a value."""
        best = ranked(self.plan, self.trials)
        rest = [trial for trial in self.trials if trial not in best]
        on_front = {t.number for t in front(self.plan, self.trials)} if self.plan.cost else set()
        recorded = ("scores", "solved", "env_steps", "cost", "reason")
        return [
            {
                "number": trial.number,
                "state": trial.state,
                "value": trial.value,
                "own": bool(trial.attrs.get("own")),
                "on_front": trial.number in on_front,
                "params": trained_values(self.sweep, self.plan, trial),
                **{name: trial.attrs.get(name) for name in recorded},
                "path": str(self.sweep.trial_dir(trial.number)),
            }
            for trial in (*best, *rest)
        ]

    def importances(self) -> dict[str, Estimate]:
        return importances(self.plan, self.trials)

    def summary(self) -> dict[str, Any]:
        best = ranked(self.plan, self.trials)
        return {
            "id": self.sweep.id,
            "path": str(self.sweep.path),
            "config": self.plan.config,
            "status": self.status,
            "done": sum(trial.is_over for trial in self.trials),
            "trials": self.plan.trials,
            "sampler": self.plan.sampler,
            "metric": self.plan.metric.name,
            "goal": self.plan.metric.goal,
            "best": best[0].value if best else None,
        }

    def to_dict(self) -> dict[str, Any]:
        return self.summary() | {
            "params": dict(self.plan.params),
            "importances": {name: one.value for name, one in self.importances().items()},
            "importance_intervals": {
                name: [one.low, one.high] for name, one in self.importances().items()
            },
            "rows": self.rows(),
            "result": self.result,
        }


def view(ref: str = "@last", runs_dir: str | Path | None = None) -> View:
    """A sweep by @last, an id, a part of one, or a path."""
    return _view(find_sweep(ref, runs_root(runs_dir)))


def views(runs_dir: str | Path | None = None) -> Sequence[View]:
    """All sweeps, newest first."""
    runs = runs_root(runs_dir)
    return [_view(Sweep(sweeps_root(runs) / name)) for name in sweep_ids(runs)]


def _view(sweep: Sweep) -> View:
    return View(sweep, sweep.plan(), sweep.trials(), sweep.read("result.json"))
