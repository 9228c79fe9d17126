"""Tools for many runs: configs over seeds, and searches for hyper-parameters."""

import json
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import FILE, FOLDER, experiment_ids, load
from gymnasium_solver.experiments.progress import Progress, counts, status_of
from gymnasium_solver.serve.mcp import facts
from gymnasium_solver.serve.mcp.answers import answer, bounded
from gymnasium_solver.serve.mcp.commands import as_flags, output_of
from gymnasium_solver.serve.mcp.control import APPEARS_S, STOPS_S, ControlTools
from gymnasium_solver.serve.mcp.names import NO_FIELDS, checked_overrides, config_named
from gymnasium_solver.serve.mcp.places import JOBS, slots

SWEEPS, SWEEP_FILE = "sweeps", "sweep.yaml"
ID = "id"  # file of a job: the experiment that it coordinates
MOST_SEEDS, MOST_CONFIGS, MOST_TRIALS = 50, 20, 1000


class ExperimentTools:
    def __init__(self, control: ControlTools) -> None:
        self.control, self.settings, self.root = control, control.settings, control.root
        control.stop_experiment = self.stop

    def start_experiment(
        self,
        configs: Sequence[str],
        ctx: Context,
        seeds: int = 3,
        overrides: dict[str, Any] = NO_FIELDS,
        search: dict[str, str] = NO_FIELDS,
        trials: int = 20,
        max_env_steps: int = 0,
        name: str = "",
    ) -> CallToolResult:
        """Start many trainings in the background: configs over seeds, or, with search, one config
        with hyper-parameters to find, such as {"policy_lr": "log:1e-5..1e-2", "n_epochs":
        "4,10,20"}. Returns its id, for get_experiment and stop_training."""
        arguments = {k: v for k, v in locals().items() if k not in ("self", "ctx")}
        self.control.require_write(ctx)
        _check_counts(configs, seeds, trials, search)
        with self.control.audited(ctx, "start_experiment", arguments) as outcome:
            fields = checked_overrides(overrides, self.root)
            if max_env_steps:
                fields["max_env_steps"] = max_env_steps
            fields, notes = self.control.budgeted(configs, fields)
            made = self._start(configs, seeds, fields, search, trials, name)
            outcome["id"] = made
        return answer({"id": made, "status": "running", "notes": notes})

    def _start(
        self,
        configs: Sequence[str],
        seeds: int,
        fields: dict[str, Any],
        search: dict[str, str],
        trials: int,
        name: str,
    ) -> str:
        targets = [config_named(config, self.root) for config in configs]
        made = _name(configs[0], name)
        kind = SWEEPS if search else FOLDER
        if (self.root / kind / made).exists():
            raise RunError(f"{made} exists already; choose another name")
        wanted = trials if search else seeds * len(configs)
        with slots(self.root, self.settings.max_trainings, wanted, made) as (n, folder):
            common = ["--runs-dir", str(self.root.absolute()), "--jobs", str(n), "--quiet"]
            if search:
                params = [word for k, v in search.items() for word in ("--param", f"{k}={v}")]
                words = ["sweep", *targets, *params, "--trials", str(trials), "--name", made]
            else:
                words = ["train", *targets, "--seeds", str(seeds), "--experiment", made]
            job = local.start(self.control.argv(*words, *common, *as_flags(fields)), folder)
        return self._appeared(job, self.root / kind, made)

    def _appeared(self, job: local.Job, folder: Path, name: str) -> str:
        """The id of the experiment, once it exists; its own message if it fails before. A search
        has a date behind its name."""
        deadline = time.monotonic() + APPEARS_S
        while True:
            for path in (folder / name, *folder.glob(f"{name}-*")):
                if any((path / file).exists() for file in (FILE, SWEEP_FILE)):
                    (job.folder / ID).write_text(path.name)
                    return path.name
            if not job.is_running:
                text = "\n".join(local.tail(job.folder, 8)) or "it printed nothing"
                shutil.rmtree(job.folder, ignore_errors=True)
                raise RunError(re.sub(r"^gsolve \w+: ", "", text))
            if time.monotonic() > deadline:
                local.kill(job.folder)
                raise RunError(f"{name} did not begin within {APPEARS_S:g} s")
            time.sleep(0.05)

    def get_experiment(self, id: str = "", limit: int = 20) -> CallToolResult:
        """How far an experiment or a search is, its runs or best trials, and the comparison so far.
        Without id: all experiments and searches."""
        if not id:
            ids = experiment_ids(self.root)[: bounded(limit)]
            rows = [self._row(name) for name in ids]
            return answer({"experiments": rows, "searches": sweep_ids(self.root)[: bounded(limit)]})
        kind, name = self.find(id)
        if kind == SWEEPS:
            return answer(self._search(name, bounded(limit)))
        rows_ = Progress(load(self.root / FOLDER / name)).rows()
        data: dict[str, Any] = {"id": name, "status": status_of(rows_), "counts": counts(rows_)}
        data["running"] = self.is_running(name)
        data["runs"] = [_short(row.to_dict()) for row in rows_[: bounded(limit)]]
        scored = [row.run.id for row in rows_ if row.run is not None and _has_score(row.run)]
        if scored:
            data |= facts.comparison(scored, self.root)
        return answer(data)

    def _search(self, name: str, limit: int) -> dict[str, Any]:
        """A search as `gsolve sweep show` prints it: the best trials first."""
        where = ["--json", "--runs-dir", str(self.root.absolute())]
        shown = json.loads(output_of("sweep", "show", name, *where))
        names = ("number", "value", "state", "own", "params", "env_steps", "reason")
        rows = [{n: row.get(n) for n in names} for row in shown.pop("rows", [])[:limit]]
        return shown | {"running": self.is_running(name), "best_trials": rows}

    def _row(self, name: str) -> dict[str, Any]:
        try:
            rows = Progress(load(self.root / FOLDER / name)).rows()
            return {"id": name, "status": status_of(rows), "counts": counts(rows)}
        except RunError as error:
            return {"id": name, "status": "broken", "counts": str(error)[:80]}

    def find(self, ref: str) -> tuple[str, str]:
        """(folder, id) of an experiment or a sweep by its id or a unique part of it."""
        known = [(FOLDER, name) for name in experiment_ids(self.root)]
        known += [(SWEEPS, name) for name in sweep_ids(self.root)]
        exact = [found for found in known if found[1] == ref]
        matches = exact or [found for found in known if ref.strip() and ref in found[1]]
        if len(matches) == 1:
            return matches[0]
        what = "matches several" if matches else "is none"
        names = ", ".join(name for _, name in (matches or known)[:8])
        raise RunError(f"{ref[:80]!r} {what} of the experiments and searches: {names or 'no'}")

    def _job_folder(self, name: str) -> Path | None:
        for path in (self.root / JOBS).glob(f"*/{ID}"):
            if path.read_text() == name:
                return path.parent
        return None

    def is_running(self, name: str) -> bool:
        folder = self._job_folder(name)
        return folder is not None and local.is_running(folder)

    def stop(self, ref: str) -> tuple[str, str]:
        """Stop what coordinates an experiment; it stops its trainings, which save. LookupError if
        there is no such experiment."""
        try:
            _, name = self.find(ref)
        except RunError as error:
            raise LookupError(str(error)) from None
        folder = self._job_folder(name)
        if folder is None or not local.stop(folder):
            raise RunError(f"{name} is not running, or was not started over MCP: stop its runs")
        return name, "stopped" if local.wait(folder, STOPS_S) else "stopping"


def sweep_ids(root: Path) -> list[str]:
    folder = root / SWEEPS
    if not folder.is_dir():
        return []
    found = [p.name for p in folder.iterdir() if p.name[0] not in "@."]
    return sorted((n for n in found if (folder / n / SWEEP_FILE).is_file()), reverse=True)


def _check_counts(configs: Sequence[str], seeds: int, trials: int, search: dict[str, str]) -> None:
    if not 1 <= len(configs) <= MOST_CONFIGS:
        raise GsolveError(f"{len(configs)} configs given, expected 1 to {MOST_CONFIGS}")
    if search and len(configs) > 1:
        raise GsolveError("a search takes one config")
    if not 1 <= seeds <= MOST_SEEDS or not 1 <= trials <= MOST_TRIALS:
        raise GsolveError(f"expected 1 to {MOST_SEEDS} seeds and 1 to {MOST_TRIALS} trials")
    for key, value in search.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]*", key) or len(value) > 300 or "/" in value:
            raise GsolveError(f"search: {key[:40]}={value[:40]!r} is not a range of a field")


def _name(config: str, name: str) -> str:
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}", name):
        raise RunError(f"{name[:60]!r} is not a name: expected letters, digits and . _ + = -")
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", config).strip("-.")[:60] or "experiment"
    return name or f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _short(row: dict[str, Any]) -> dict[str, Any]:
    test, best = row.get("test"), row.get("best")
    names = ("run", "group", "seed", "status", "env_steps")
    return {n: row[n] for n in names} | {
        "test": test["mean"] if test else None,
        "val": best["score"] if best else None,
    }


def _has_score(run: Any) -> bool:
    return run.test is not None or run.best is not None
