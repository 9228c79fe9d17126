"""Tools that change something: start, stop, wait for, edit, export and publish a run; start many
runs over configs and seeds, or a search for hyper-parameters, and keep what it found.

A process coordinates each experiment and search, in `.mcp-jobs/<name>/`; what it makes is where
`gsolve train --seeds` and `gsolve sweep` put it.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import anyio
import anyio.to_thread

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import experiment
from gymnasium_solver.experiments.auto import story
from gymnasium_solver.experiments.search.sweep_folder import is_sweep, sweep_ids, sweeps_root, view
from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import is_locked, picked
from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.resolve import meant, resolve_checkpoint, run_name
from gymnasium_solver.runs.run import Run, is_run, live_status
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.commands import output_of
from gymnasium_solver.serve.mcp import allowed
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.mcp.budget import NOTHING, Cost, cost_of
from gymnasium_solver.serve.mcp.read_tools import (
    ENDED,
    MOST_WAIT_S,
    LongPatience,
    Patience,
    comparison,
    progress,
    summary,
)
from gymnasium_solver.serve.questions import (
    NO_FIELDS,
    Answer,
    BadRequest,
    Fields,
    Limit,
    OneRun,
    Within,
    plain_name,
)

STOPS_S = 25.0
PUBLISH_S = 600.0
MOST_CONFIGS = 20
SOLVE_STEPS = 300_000  # of a solve whose budget is not given
TRACKERS = ("csv", "tensorboard", "wandb", "trackio", "none")
SENDING = {"wandb", "trackio"}
RESULT = "winner params is_own verdict"
FINAL = "trial own value score interval scores solved seeds"
TRIAL = "number value state own params env_steps reason"
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
    track: str = "",
) -> Answer:
    """Start a training in the background and return its run id. It outlives this server.
    config: <env>:<variant>, any <env>, or a run to repeat its config. overrides: any config
    fields, such as {"policy_lr": 0.001, "algo_id": "td3"}. resume: continue this run exactly,
    instead of a config. name: of the run's folder. track: csv, tensorboard, wandb; none."""
    if bool(config) == bool(resume):
        raise RunError("give either config or resume")
    fields = allowed.checked_overrides(overrides, desk.root)
    if seed >= 0:
        fields["seed"] = seed
    if max_env_steps:
        fields["max_env_steps"] = max_env_steps
    flags = ["--quiet", *_tracked(desk, track)]
    if resume:
        run, notes = _resume(desk, desk.run(resume), fields, flags)
    else:
        run, notes = _start(desk, config, fields, name, flags)
    if tags:
        change_tags(run, tags)
    if note:
        set_note(run, note)
    status = live_status(run.meta())
    told = {"run": run_name(run, desk.root), "status": status, "notes": notes}
    return told | desk.left() | {"next": "wait_for, get_run"}


def _tracked(desk: AgentDesk, track: str) -> list[str]:
    names = [name.strip() for name in track.split(",") if name.strip()]
    if unknown := [name for name in names if name not in TRACKERS]:
        raise BadRequest(f"{unknown[0][:40]!r} is no tracker: expected {', '.join(TRACKERS)}")
    if SENDING & set(names) and not desk.settings.allow_publish:
        raise allowed.Refused("runs may not leave this machine; the server needs --allow-publish")
    return ["--track", ",".join(names)] if names else []


def _start(
    desk: AgentDesk, config: str, fields: Fields, name: str, flags: Sequence[str]
) -> tuple[Run, list[str]]:
    config = allowed.with_algorithm(config, fields)
    allowed.checked_config(config, desk.root)
    fields, notes, cost = allowed.budgeted(desk, [config], fields)
    job = _launch(desk, partial(trainings.start, desk.root, config, name), fields, flags, cost)
    run = Run(job.folder)
    allowed.appeared(job, lambda: run.id if is_run(run.path) else None, is_new=True)
    return run, notes


def _resume(
    desk: AgentDesk, run: Run, fields: Fields, flags: Sequence[str]
) -> tuple[Run, list[str]]:
    before = query.get_run(run)
    planned = query.get_config(run).get("max_env_steps")
    fields, notes, cost = desk.within_budget(fields, planned, before.env_steps)

    def n_resumed() -> int:
        return len(run.meta().get("resumed") or [])

    known, start = n_resumed(), partial(trainings.resume, run)
    job = _launch(desk, start, fields, flags, cost, cost_of([before]))
    allowed.appeared(job, lambda: run.id if n_resumed() > known else None)
    return run, notes


def _launch(
    desk: AgentDesk,
    start: Callable[..., local.Job],
    fields: Fields,
    flags: Sequence[str],
    cost: Cost,
    before: Cost = NOTHING,
) -> local.Job:
    """Start a training within what the server allows. `before`: what its run had taken."""
    with desk.slots():
        limit_s = desk.time_limit(1)
        job = start(allowed.yaml_texts(fields), *flags, argv=partial(desk.argv, limit_s))
        taken = Cost(cost.env_steps, limit_s)
        desk.ledger.add(job.folder, lambda: _summaries([job.folder]), taken, before)
    return job


def _summaries(folders: Iterable[Path]) -> list[RunSummary]:
    """The runs in these folders that exist."""
    return [query.get_run(Run(folder)) for folder in folders if is_run(folder)]


def stop_training(desk: AgentDesk, run: str, force: bool = False) -> Answer:
    """Stop a training, whoever started it: it saves a checkpoint, ends, and can be resumed.
    force: kill it without saving. run: also an experiment or a search."""
    found = _run_or_name(desk, run)
    if isinstance(found, str):
        return stop_experiment(desk, found)
    trainings.stop(found, force=force, wait_s=STOPS_S)
    now = desk.summary(found)
    return summary(now) | {"progress": progress(now)}


def _run_or_name(desk: AgentDesk, ref: str) -> Run | str:
    """The run that is meant, or the id of an experiment or a search. Within ids come first."""
    ref = plain_name(ref, "run")
    groups = [*experiment.experiment_ids(desk.root), *sweep_ids(desk.root)]
    if ref in groups and not is_run(desk.root / ref):
        return ref
    try:
        return desk.run(ref)
    except RunError:
        parts = [name for name in groups if ref.lower() in name.lower()]
        if len(parts) != 1:
            raise
        return parts[0]


async def wait_for(
    desk: AgentDesk,
    run: str,
    until: Literal["end", "evaluation"] = "end",
    env_steps: int = 0,
    seconds: Patience = 30,
) -> Answer:
    """Wait until a run, experiment or search ends, has a new evaluation (run, trial) or reaches
    env_steps, at most 50 seconds; then its progress. Call it again while done is false."""
    in_thread = anyio.to_thread.run_sync
    target = await in_thread(_run_or_name, desk, run)
    pause_s = 0.5 if isinstance(target, Run) else 2.0
    deadline = time.monotonic() + seconds
    first = now = await in_thread(_look, desk, target)
    while True:
        is_done = now.has_ended or (bool(env_steps) and now.env_steps >= env_steps)
        is_done |= until == "evaluation" and now.n_results > first.n_results
        if is_done or time.monotonic() >= deadline:
            return {"done": is_done} | now.told
        await anyio.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        now = await in_thread(_look, desk, target)


class Look(NamedTuple):
    """What is waited for, as it is now."""

    has_ended: bool
    env_steps: int
    n_results: int
    told: Answer


def _look(desk: AgentDesk, target: Run | str) -> Look:
    return _at_run(desk, target) if isinstance(target, Run) else _at_group(desk, target)


def _at_run(desk: AgentDesk, run: Run) -> Look:
    now = desk.summary(run)
    has_ended = now.status in ENDED
    told: Answer = summary(now) if has_ended else {"run": now.id, "status": now.status}
    n = len(query.get_events(run, "eval"))
    return Look(has_ended, now.env_steps, n, told | {"progress": progress(now)})


def _at_group(desk: AgentDesk, name: str) -> Look:
    is_running = _is_running(desk, name)
    if not is_sweep(sweeps_root(desk.root) / name):
        rows, told = _members(desk, name)
        n_over = sum(row.status in ENDED for row in rows)
        steps = sum(row.run.env_steps for row in rows if row.run is not None)
        has_ended = not is_running and told["status"] != "running"
        told |= {"env_steps": steps, "next": "get_experiment"} | _solve_told(desk, name)
        return Look(has_ended, steps, n_over, told)
    found = view(name, desk.root)
    told = picked(found.summary(), "id status trials metric best trials_done=done")
    final = _summaries(found.sweep.path.glob("final/*/*"))
    if final:
        told["final_runs_done"] = sum(run.status in ENDED for run in final)
    if found.result:
        told |= picked(found.result, "winner params verdict")
    steps = sum(int(trial.attrs.get("env_steps") or 0) for trial in found.trials)
    steps += sum(run.env_steps for run in final)
    n_results = told["trials_done"] + told.get("final_runs_done", 0)
    has_ended = not is_running and found.status != "running"
    return Look(has_ended, steps, n_results, told | {"env_steps": steps})


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
        fields = allowed.checked_overrides(set, desk.root)
        if "max_env_steps" in fields:
            before = query.get_run(run)
            planned = max(before.env_steps, before.max_env_steps or 0)
            fields, _, cost = desk.within_budget(fields, 0, planned)
            more = Cost(max(0.0, cost.env_steps))
            desk.ledger.add(run.path, lambda: _summaries([run.path]), more, cost_of([before]))
        words = [f"{key}={text}" for key, text in allowed.yaml_texts(fields).items()]
        words += ["--source", "mcp"] + (["--at", str(at_env_steps)] if at_env_steps else [])
        said = output_of("set", str(run.path.absolute()), *words, "--json")
        names = ("applied", "refused", "changed", "env_steps")
        done["set"] = {key: said[key] for key in said if key in names}
    if add_tags or remove_tags:
        change_tags(run, add_tags, remove_tags)
    if note is not None:
        set_note(run, note)
    return summary(desk.summary(run)) | done


def export(
    desk: AgentDesk, target: str, format: str = "onnx", seconds: LongPatience = MOST_WAIT_S
) -> Answer:
    """Write the policy of RUN or RUN/<checkpoint> as a file, compared with its actions. format:
    onnx, torch, or c for a small MLP. Call it again while done is false."""
    if not format.isalnum():
        raise BadRequest(f"{format[:40]!r} is not a format")
    found = resolve_checkpoint(target, desk.root, allow_paths=False)
    words = ["export", f"{found.run.path.absolute()}/{found.path.name}", "--format", format]
    return desk.told(seconds, *words, "--json")


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
    shown: Answer = output_of(*words, timeout_s=PUBLISH_S)
    return shown


# --- experiments and searches


def start_experiment(
    desk: AgentDesk,
    configs: Sequence[str],
    seeds: Annotated[int, Within(1, 50)] = 5,
    overrides: Fields = NO_FIELDS,
    search: dict[str, str] = NO_FIELDS,
    trials: Annotated[int, Within(1, 1000)] = 20,
    max_env_steps: int = 0,
    name: str = "",
    solve: bool = False,
) -> Answer:
    """Start many trainings in the background: configs over seeds, or, with search, one config
    with hyper-parameters to find, such as {"policy_lr": "log:1e-5..1e-2", "n_epochs":
    "4,10,20"}, or, with solve, one untuned <env>. Returns its id, for wait_for, get_experiment
    and stop_training."""
    is_one = bool(search) or solve
    if not 1 <= len(configs) <= (1 if is_one else MOST_CONFIGS):
        most = "one" if is_one else f"1 to {MOST_CONFIGS}"
        raise BadRequest(f"{len(configs)} configs given, expected {most}")
    if search and solve:
        raise BadRequest("search and solve: give one of them")
    allowed.checked_ranges(search)
    fields = allowed.checked_overrides(overrides, desk.root)
    if max_env_steps:
        fields["max_env_steps"] = max_env_steps
    configs = [allowed.with_algorithm(config, fields) for config in configs]
    targets = [allowed.checked_config(config, desk.root) for config in configs]
    made = experiment.slug(trainings.new_name(configs[0], name))
    folder = (sweeps_root(desk.root) if search else desk.root / experiment.FOLDER) / made
    if folder.exists():
        raise RunError(f"{made} exists already; choose another name")
    wanted, n_each = trials if search else seeds * len(configs), seeds
    words = trainings.many_words(desk.root, targets, made, seeds, search or None, trials)
    if solve:
        fields, notes, cost = desk.within_budget(fields, SOLVE_STEPS)
        steps = fields.get("max_env_steps", SOLVE_STEPS)
        fields = {name: value for name, value in fields.items() if name != "max_env_steps"}
        words, wanted = trainings.solve_words(desk.root, targets[0], made, str(steps)), 2
    else:
        if search and desk.settings.total_env_steps is not None:
            flags = trainings.as_flags(allowed.yaml_texts(fields))
            n_each = int(output_of(*words, *flags, "--dry-run", "--json")["trainings"])
        fields, notes, cost = allowed.budgeted(desk, configs, fields, n_each)
    words += trainings.as_flags(allowed.yaml_texts(fields))
    with desk.slots(wanted, made) as (n, job_folder):
        limit_s = desk.time_limit(n)
        job = local.start(desk.argv(limit_s, *words, "--jobs", str(n), "--quiet"), job_folder)
        taken = Cost(cost.env_steps, n * limit_s)
        desk.ledger.add(job_folder, lambda: _runs_of(folder), taken)
    allowed.appeared(job, lambda: made if _exists(folder) else None, is_new=True)
    return {"id": made, "status": "running", "notes": notes} | desk.left()


def _solve_told(desk: AgentDesk, name: str) -> Answer:
    """What a solve has decided so far; nothing for other experiments."""
    found = story(desk.root / experiment.FOLDER / name)
    if found is None:
        return {}
    lines = [f"{stage}: {text}" for stage, text in found["lines"] or []]
    return {"solve": {"lines": lines, "verdict": found["verdict"]}}


def _exists(folder: Path) -> bool:
    """Whether an experiment or a search is there by now."""
    return is_sweep(folder) or (folder / experiment.FILE).exists()


def _runs_of(folder: Path) -> list[RunSummary]:
    """The runs of an experiment or a search that exist."""
    if is_sweep(folder) or not _exists(folder):
        return _summaries(folder.glob("*/*/*"))
    return _summaries(experiment.load(folder).folders())


def get_experiment(desk: AgentDesk, id: str = "", limit: Limit = 20) -> Answer:
    """How far an experiment or a search is, its runs or best trials, and the comparison so far.
    Without id: all experiments and searches."""
    if not id:
        rows = [_brief(desk, name) for name in experiment.experiment_ids(desk.root)[:limit]]
        return {"experiments": rows, "searches": sweep_ids(desk.root)[:limit]}
    name = _named(desk, id)
    is_running = _is_running(desk, name)
    if is_sweep(sweeps_root(desk.root) / name):
        shown = view(name, desk.root).to_dict()
        del shown["path"]
        best = [picked(trial, TRIAL) for trial in shown.pop("rows", [])[:limit]]
        if result := shown["result"]:
            final = [picked(row, FINAL) for row in result.get("final") or []]
            shown["result"] = picked(result, RESULT) | {"final": final}
        about = f"{name}/trials/{'0' * 4}/seed0 is the run of trial 0; final/ has the final's"
        return shown | {"running": is_running, "best_trials": best, "runs": about}
    members, told = _members(desk, name)
    runs = [
        picked(row.to_dict(), "run group seed status env_steps")
        | {"test": row.run and row.run.test_mean, "val": row.run and row.run.best_score}
        for row in members[:limit]
    ]
    scored = [row.run.id for row in members if row.run and (row.run.test or row.run.best)]
    compared = comparison(desk, [Run(desk.root / id_) for id_ in scored]) if scored else {}
    return told | {"running": is_running, "runs": runs} | compared | _solve_told(desk, name)


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
    return meant(plain_name(ref, "id"), known, "experiment or search", desk.root)


def _is_running(desk: AgentDesk, name: str) -> bool:
    """Whether something coordinates an experiment or a search, whoever started it."""
    found = sweeps_root(desk.root) / name
    folder = found if is_sweep(found) else desk.root / experiment.FOLDER / name
    return local.is_running(desk.root / allowed.JOBS / name) or is_locked(folder)


def stop_experiment(desk: AgentDesk, name: str) -> Answer:
    """Stop what coordinates an experiment; it stops its trainings, which save."""
    folder = desk.root / allowed.JOBS / name
    if not local.stop(folder):
        raise RunError(f"{name} is not running, or was not started over MCP: stop its runs")
    return {"id": name, "status": "stopped" if local.wait(folder, STOPS_S) else "stopping"}


def save_config(desk: AgentDesk, search: str, variant: str, trial: int = -1) -> Answer:
    """Write the winner of a search, or a trial, into the person's config files as a variant
    that start_training takes."""
    sweep = view(_named(desk, search), desk.root).sweep
    config, words = trainings.keep_words(sweep.path, sweep.base_path, variant, trial)
    told: Answer = output_of(*words)
    return {"config": config} | told
