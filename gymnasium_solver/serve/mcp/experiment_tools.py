"""Tools for many runs: configs over seeds, and searches for hyper-parameters.

A process coordinates each of them, in `.mcp-jobs/<name>/`; the experiment or search itself is where
`gsolve train --seeds` and `gsolve sweep` put it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import (
    FILE,
    FOLDER,
    Progress,
    Row,
    counts,
    experiment_ids,
    load,
    status_of,
)
from gymnasium_solver.experiments.search.folder import is_sweep, sweep_ids, sweeps_root
from gymnasium_solver.experiments.search.view import view
from gymnasium_solver.serve.mcp.allowed import JOBS, AgentDesk
from gymnasium_solver.serve.mcp.commands import appeared, budgeted, checked_overrides, yaml_texts
from gymnasium_solver.serve.mcp.read_tools import comparison
from gymnasium_solver.serve.questions import NO_FIELDS, Limit
from gymnasium_solver.serve.trainings import as_flags, config_named, new_name

ID = "id"  # file of a job: the experiment that it coordinates
MOST_SEEDS, MOST_CONFIGS, MOST_TRIALS = 50, 20, 1000
STOPS_S = 25.0
TRIAL = ("number", "value", "state", "own", "params", "env_steps", "reason")


def start_experiment(
    desk: AgentDesk,
    configs: Sequence[str],
    ctx: Context,
    seeds: int = 3,
    overrides: dict[str, Any] = NO_FIELDS,
    search: dict[str, str] = NO_FIELDS,
    trials: int = 20,
    max_env_steps: int = 0,
    name: str = "",
) -> dict[str, Any]:
    """Start many trainings in the background: configs over seeds, or, with search, one config
    with hyper-parameters to find, such as {"policy_lr": "log:1e-5..1e-2", "n_epochs":
    "4,10,20"}. Returns its id, for get_experiment and stop_training."""
    given = {k: v for k, v in locals().items() if k not in ("desk", "ctx")}
    desk.require_write(ctx)
    _check_counts(configs, seeds, trials, search)
    with desk.changing(ctx, "start_experiment", given) as outcome:
        fields = checked_overrides(overrides, desk.root)
        if max_env_steps:
            fields["max_env_steps"] = max_env_steps
        fields, notes = budgeted(desk, configs, fields)
        targets = [config_named(config, desk.root) for config in configs]
        made = new_name(configs[0], name)
        folder = sweeps_root(desk.root) if search else desk.root / FOLDER
        if (folder / made).exists():
            raise RunError(f"{made} exists already; choose another name")
        with desk.slots(trials if search else seeds * len(configs), made) as (n, job_folder):
            if search:
                params = [word for k, v in search.items() for word in ("--param", f"{k}={v}")]
                words = ["sweep", *targets, *params, "--trials", str(trials), "--name", made]
            else:
                words = ["train", *targets, "--seeds", str(seeds), "--experiment", made]
            words += ["--runs-dir", str(desk.root.absolute()), "--jobs", str(n), "--quiet"]
            job = local.start(desk.argv(*words, *as_flags(yaml_texts(fields))), job_folder)
        outcome["id"] = appeared(job, lambda: _made(folder, made))
        (job_folder / ID).write_text(outcome["id"])
    return {"id": outcome["id"], "status": "running", "notes": notes}


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


def _made(folder: Path, name: str) -> str | None:
    """A search has a date behind its name."""
    paths = (folder / name, *folder.glob(f"{name}-*"))
    return next((p.name for p in paths if (p / FILE).exists() or is_sweep(p)), None)


def get_experiment(desk: AgentDesk, id: str = "", limit: Limit = 20) -> dict[str, Any]:
    """How far an experiment or a search is, its runs or best trials, and the comparison so far.
    Without id: all experiments and searches."""
    if not id:
        rows = [_brief(desk, name) for name in experiment_ids(desk.root)[:limit]]
        return {"experiments": rows, "searches": sweep_ids(desk.root)[:limit]}
    name = _named(desk, id)
    job = _job_folder(desk, name)
    is_running = job is not None and local.is_running(job)
    if is_sweep(sweeps_root(desk.root) / name):
        shown = view(name, desk.root).to_dict()
        best = [{n: trial.get(n) for n in TRIAL} for trial in shown.pop("rows", [])[:limit]]
        return shown | {"running": is_running, "best_trials": best}
    members = Progress(load(desk.root / FOLDER / name)).rows()
    data: dict[str, Any] = {"id": name, "status": status_of(members), "counts": counts(members)}
    data |= {"running": is_running, "runs": [_member(row) for row in members[:limit]]}
    scored = [row.run.id for row in members if row.run and (row.run.test or row.run.best)]
    return data | (comparison(desk, scored) if scored else {})


def _brief(desk: AgentDesk, name: str) -> dict[str, Any]:
    try:
        rows = Progress(load(desk.root / FOLDER / name)).rows()
        return {"id": name, "status": status_of(rows), "counts": counts(rows)}
    except RunError as error:
        return {"id": name, "status": "broken", "counts": str(error)[:80]}


def _member(row: Row) -> dict[str, Any]:
    told, run = row.to_dict(), row.run
    return {n: told[n] for n in ("run", "group", "seed", "status", "env_steps")} | {
        "test": run.test["mean"] if run and run.test else None,
        "val": run.best["score"] if run and run.best else None,
    }


def _named(desk: AgentDesk, ref: str) -> str:
    """The id of an experiment or a search from a unique part of it."""
    known = [*experiment_ids(desk.root), *sweep_ids(desk.root)]
    matches = [ref] if ref in known else [name for name in known if ref.strip() and ref in name]
    if len(matches) == 1:
        return matches[0]
    what = "matches several" if matches else "is none"
    names = ", ".join((matches or known)[:8])
    raise RunError(f"{ref[:80]!r} {what} of the experiments and searches: {names or 'no'}")


def _job_folder(desk: AgentDesk, name: str) -> Path | None:
    """The folder of what coordinates an experiment, if it was started over MCP."""
    found = (desk.root / JOBS).glob(f"*/{ID}")
    return next((path.parent for path in found if path.read_text() == name), None)


def stop_experiment(desk: AgentDesk, ref: str, no_run: RunError) -> dict[str, Any]:
    """Stop what coordinates an experiment; it stops its trainings, which save. `no_run` is raised
    if there is no such experiment."""
    try:
        name = _named(desk, ref)
    except RunError:
        raise no_run from None
    folder = _job_folder(desk, name)
    if folder is None or not local.stop(folder):
        raise RunError(f"{name} is not running, or was not started over MCP: stop its runs")
    return {"id": name, "status": "stopped" if local.wait(folder, STOPS_S) else "stopping"}
