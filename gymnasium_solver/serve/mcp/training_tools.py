"""Tools that change something: start, stop, wait for, edit and publish a run; start many runs over
configs and seeds, or a search for hyper-parameters.

A process coordinates each experiment and search, in `.mcp-jobs/<name>/`; what it makes is where
`gsolve train --seeds` and `gsolve sweep` put it.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import anyio
import anyio.to_thread

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import experiment
from gymnasium_solver.experiments.search.sweep_folder import is_sweep, sweep_ids, sweeps_root, view
from gymnasium_solver.runs import query
from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.run import Run, is_run, live_status
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.mcp import allowed
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.mcp.read_tools import ENDED, comparison, progress, summary
from gymnasium_solver.serve.questions import (
    NO_FIELDS,
    Answer,
    BadRequest,
    Fields,
    Limit,
    OneRun,
    Whole,
)

STOPS_S = 25.0
MOST_WAIT_S = 50.0  # clients give up after a minute
PUBLISH_S = 600.0
MOST_CONFIGS = 20
ID = "id"  # file of a job: the experiment that it coordinates
TRIAL = ("number", "value", "state", "own", "params", "env_steps", "reason")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def start_training(
    desk: AgentDesk,
    config: str = "",
    overrides: Fields = NO_FIELDS,
    max_env_steps: int = 0,
    seed: int = -1,
    name: str = "",
    resume: str = "",
    tags: Sequence[str] = (),
    note: str = "",
) -> Answer:
    """Start a training in the background and return its run id. It outlives this server.
    config: <env>:<variant>, or a run to repeat its config. overrides: any config fields, such
    as {"policy_lr": 0.001, "hidden_dims": [64, 64]}. resume: continue this run exactly,
    instead of a config. name: of the run's folder."""
    if bool(config) == bool(resume):
        raise RunError("give either config or resume")
    fields = allowed.checked_overrides(overrides, desk.root)
    if seed >= 0:
        fields["seed"] = seed
    if max_env_steps:
        fields["max_env_steps"] = max_env_steps
    if resume:
        run, notes = _resume(desk, desk.run(resume), fields)
    else:
        run, notes = _start(desk, config, fields, name)
    if tags:
        change_tags(run, tags)
    if note:
        set_note(run, note)
    status = live_status(run.meta())
    return {"run": run.id, "status": status, "notes": notes, "next": "wait_for, get_run"}


def _start(desk: AgentDesk, config: str, fields: Fields, name: str) -> tuple[Run, list[str]]:
    fields, notes = allowed.budgeted(desk, [config], fields)
    with desk.slots():
        texts = allowed.yaml_texts(fields)
        job = trainings.start(desk.root, config, name, texts, "--quiet", argv=desk.argv)
    allowed.appeared(job, lambda: job.folder.name if is_run(job.folder) else None)
    return Run(job.folder), notes


def _resume(desk: AgentDesk, run: Run, fields: Fields) -> tuple[Run, list[str]]:
    fields, notes = desk.within_budget(fields, query.get_config(run).get("max_env_steps"))
    before = len(run.meta().get("resumed") or [])
    with desk.slots():
        job = trainings.resume(run, allowed.yaml_texts(fields), "--quiet", argv=desk.argv)
    deadline = time.monotonic() + allowed.APPEARS_S
    while time.monotonic() < deadline:
        was_running = job.is_running
        if len(run.meta().get("resumed") or []) > before:
            break
        if not was_running:
            raise RunError("\n".join(local.tail(run.path, 3)) or f"{run.id} did not resume")
        time.sleep(0.05)
    return run, notes


def stop_training(desk: AgentDesk, run: str, force: bool = False) -> Answer:
    """Stop a training, whoever started it: it saves a checkpoint, ends, and can be resumed.
    force: kill it without saving. run: also the id of an experiment or a search."""
    try:
        found = desk.run(run)
    except RunError as no_run:
        return stop_experiment(desk, run, no_run)
    trainings.stop(found, force=force, wait_s=STOPS_S)
    now = query.get_run(found)
    return summary(now) | {"progress": progress(now)}


async def wait_for(
    desk: AgentDesk,
    run: OneRun,
    until: Literal["end", "evaluation"] = "end",
    env_steps: int = 0,
    seconds: float = 30,
) -> Answer:
    """Wait until a run ends, has a new evaluation or reaches env_steps, at most 50 seconds;
    then its progress. Call it again while done is false."""
    in_thread = anyio.to_thread.run_sync
    wait_s = max(0.0, min(seconds, MOST_WAIT_S)) if seconds == seconds else 0.0
    before = await in_thread(_evaluations, run)
    deadline = time.monotonic() + wait_s
    while True:
        now = await in_thread(query.get_run, run)
        has_ended = now.status in ENDED
        has_reached = bool(env_steps) and now.env_steps >= env_steps
        if not has_ended and until == "evaluation":
            has_reached |= await in_thread(_evaluations, run) > before
        if has_ended or has_reached or time.monotonic() >= deadline:
            break
        await anyio.sleep(min(0.5, max(0.0, deadline - time.monotonic())))
    data = {"run": run.id, "done": has_ended or has_reached, "status": now.status}
    return data | (summary(now) if has_ended else {}) | {"progress": progress(now)}


def _evaluations(run: Run) -> int:
    return len(query.get_events(run, "eval"))


def edit_run(
    desk: AgentDesk,
    run: OneRun,
    add_tags: Sequence[str] = (),
    remove_tags: Sequence[str] = (),
    note: str | None = None,
    set: Fields = NO_FIELDS,
    at_env_steps: int = 0,
) -> Answer:
    """Tag a run or write its note ("" removes it). set: change config fields while it trains,
    such as {"policy_lr": 0.0001}, from the next epoch or from at_env_steps on."""
    done = {}
    if set:
        fields, _ = desk.within_budget(allowed.checked_overrides(set, desk.root), 0)
        words = [f"{key}={text}" for key, text in allowed.yaml_texts(fields).items()]
        words += ["--at", str(at_env_steps)] if at_env_steps else []
        said = allowed.output_of("set", str(run.path.absolute()), *words, "--json")
        names = ("applied", "refused", "changed", "env_steps")
        done["set"] = {key: said[key] for key in said if key in names}
    if add_tags or remove_tags:
        change_tags(run, add_tags, remove_tags)
    if note is not None:
        set_note(run, note)
    return summary(query.get_run(run)) | done


def publish_run(
    desk: AgentDesk, run: OneRun, repo: str = "", public: bool = False, dry_run: bool = True
) -> Answer:
    """Put a run with its model card on the Hugging Face Hub, private unless public. A dry run
    lists all that would leave the machine; show that to the person first."""
    if repo and not _REPO.fullmatch(repo):
        raise RunError(f"{repo[:60]!r} is not a repository: expected USER/NAME")
    words = ["publish", str(run.path.absolute()), "--json"]
    words += ["--repo", repo] if repo else []
    words += ["--public"] if public else []
    words += ["--dry-run"] if dry_run else []
    shown: Answer = allowed.output_of(*words, timeout_s=PUBLISH_S)
    return shown


# --- experiments and searches


def start_experiment(
    desk: AgentDesk,
    configs: Sequence[str],
    seeds: Annotated[int, Whole(1, 50)] = 3,
    overrides: Fields = NO_FIELDS,
    search: dict[str, str] = NO_FIELDS,
    trials: Annotated[int, Whole(1, 1000)] = 20,
    max_env_steps: int = 0,
    name: str = "",
) -> Answer:
    """Start many trainings in the background: configs over seeds, or, with search, one config
    with hyper-parameters to find, such as {"policy_lr": "log:1e-5..1e-2", "n_epochs":
    "4,10,20"}. Returns its id, for get_experiment and stop_training."""
    if not 1 <= len(configs) <= (1 if search else MOST_CONFIGS):
        most = "one for a search" if search else f"1 to {MOST_CONFIGS}"
        raise BadRequest(f"{len(configs)} configs given, expected {most}")
    for key, value in search.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]*", key) or len(value) > 300 or "/" in value:
            raise BadRequest(f"search: {key[:40]}={value[:40]!r} is not a range of a field")
    fields = allowed.checked_overrides(overrides, desk.root)
    if max_env_steps:
        fields["max_env_steps"] = max_env_steps
    fields, notes = allowed.budgeted(desk, configs, fields)
    targets = [trainings.config_named(config, desk.root) for config in configs]
    made = trainings.new_name(configs[0], name)
    folder = sweeps_root(desk.root) if search else desk.root / experiment.FOLDER
    if (folder / made).exists():
        raise RunError(f"{made} exists already; choose another name")
    with desk.slots(trials if search else seeds * len(configs), made) as (n, job_folder):
        if search:
            params = [word for k, v in search.items() for word in ("--param", f"{k}={v}")]
            words = ["sweep", *targets, *params, "--trials", str(trials), "--name", made]
        else:
            words = ["train", *targets, "--seeds", str(seeds), "--experiment", made]
        words += ["--runs-dir", str(desk.root.absolute()), "--jobs", str(n), "--quiet"]
        words += trainings.as_flags(allowed.yaml_texts(fields))
        job = local.start(desk.argv(*words), job_folder)
    id_ = allowed.appeared(job, lambda: _made(folder, made))
    (job_folder / ID).write_text(id_)
    return {"id": id_, "status": "running", "notes": notes}


def _made(folder: Path, name: str) -> str | None:
    """A search has a date behind its name."""
    paths = (folder / name, *folder.glob(f"{name}-*"))
    return next((p.name for p in paths if (p / experiment.FILE).exists() or is_sweep(p)), None)


def get_experiment(desk: AgentDesk, id: str = "", limit: Limit = 20) -> Answer:
    """How far an experiment or a search is, its runs or best trials, and the comparison so far.
    Without id: all experiments and searches."""
    if not id:
        rows = [_brief(desk, name) for name in experiment.experiment_ids(desk.root)[:limit]]
        return {"experiments": rows, "searches": sweep_ids(desk.root)[:limit]}
    name = _named(desk, id)
    job = _job_folder(desk, name)
    is_running = job is not None and local.is_running(job)
    if is_sweep(sweeps_root(desk.root) / name):
        shown = view(name, desk.root).to_dict()
        best = [{n: trial.get(n) for n in TRIAL} for trial in shown.pop("rows", [])[:limit]]
        return shown | {"running": is_running, "best_trials": best}
    members, told = _members(desk, name)
    runs = [
        {n: row.to_dict()[n] for n in ("run", "group", "seed", "status", "env_steps")}
        | {"test": row.run and row.run.test_mean, "val": row.run and row.run.best_score}
        for row in members[:limit]
    ]
    scored = [row.run.id for row in members if row.run and (row.run.test or row.run.best)]
    compared = comparison(desk, scored) if scored else {}
    return told | {"running": is_running, "runs": runs} | compared


def _members(desk: AgentDesk, name: str) -> tuple[list[experiment.Row], Answer]:
    """The runs of an experiment, and how far it is."""
    rows = experiment.Progress(experiment.load(desk.root / experiment.FOLDER / name)).rows()
    status, counts = experiment.status_of(rows), experiment.counts(rows)
    return rows, {"id": name, "status": status, "counts": counts}


def _brief(desk: AgentDesk, name: str) -> Answer:
    try:
        return _members(desk, name)[1]
    except RunError as error:
        return {"id": name, "status": "broken", "counts": str(error)[:80]}


def _named(desk: AgentDesk, ref: str) -> str:
    """The id of an experiment or a search from a unique part of it."""
    known = [*experiment.experiment_ids(desk.root), *sweep_ids(desk.root)]
    matches = [ref] if ref in known else [name for name in known if ref.strip() and ref in name]
    if len(matches) == 1:
        return matches[0]
    what = "matches several" if matches else "is none"
    names = ", ".join((matches or known)[:8])
    raise RunError(f"{ref[:80]!r} {what} of the experiments and searches: {names or 'no'}")


def _job_folder(desk: AgentDesk, name: str) -> Path | None:
    """The folder of what coordinates an experiment, if it was started over MCP."""
    found = (desk.root / allowed.JOBS).glob(f"*/{ID}")
    return next((path.parent for path in found if path.read_text() == name), None)


def stop_experiment(desk: AgentDesk, ref: str, no_run: RunError) -> Answer:
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
