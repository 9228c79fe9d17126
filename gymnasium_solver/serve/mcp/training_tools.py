"""Tools that change a run: start, stop and wait for a training, edit it, publish it."""

import re
import time
from collections.abc import Sequence
from typing import Any, Literal

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.run import Run, is_run, live_status
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.mcp.commands import (
    APPEARS_S,
    appeared,
    budgeted,
    checked_overrides,
    output_of,
    yaml_texts,
)
from gymnasium_solver.serve.mcp.experiment_tools import stop_experiment
from gymnasium_solver.serve.mcp.read_tools import ENDED, progress, summary
from gymnasium_solver.serve.questions import NO_FIELDS, OneRun

STOPS_S = 25.0
MOST_WAIT_S = 50.0  # clients give up after a minute
PUBLISH_S = 600.0
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def start_training(
    desk: AgentDesk,
    ctx: Context,
    config: str = "",
    overrides: dict[str, Any] = NO_FIELDS,
    max_env_steps: int = 0,
    seed: int = -1,
    name: str = "",
    resume: str = "",
    tags: Sequence[str] = (),
    note: str = "",
) -> dict[str, Any]:
    """Start a training in the background and return its run id. It outlives this server.
    config: <env>:<variant>, or a run to repeat its config. overrides: any config fields, such
    as {"policy_lr": 0.001, "hidden_dims": [64, 64]}. resume: continue this run exactly,
    instead of a config. name: of the run's folder."""
    given = {k: v for k, v in locals().items() if k not in ("desk", "ctx")}
    desk.require_write(ctx)
    if bool(config) == bool(resume):
        raise RunError("give either config or resume")
    with desk.changing(ctx, "start_training", given) as outcome:
        fields = checked_overrides(overrides, desk.root)
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
        outcome["run"] = run.id
    status = live_status(run.meta())
    return {"run": run.id, "status": status, "notes": notes, "next": "wait_for, get_run"}


def _start(
    desk: AgentDesk, config: str, fields: dict[str, Any], name: str
) -> tuple[Run, list[str]]:
    fields, notes = budgeted(desk, [config], fields)
    with desk.slots():
        texts = yaml_texts(fields)
        job = trainings.start(desk.root, config, name, texts, "--quiet", argv=desk.argv)
    appeared(job, lambda: job.folder.name if is_run(job.folder) else None)
    return Run(job.folder), notes


def _resume(desk: AgentDesk, run: Run, fields: dict[str, Any]) -> tuple[Run, list[str]]:
    fields, notes = desk.within_budget(fields, query.get_config(run).get("max_env_steps"))
    before = len(run.meta().get("resumed") or [])
    with desk.slots():
        job = trainings.resume(run, yaml_texts(fields), "--quiet", argv=desk.argv)
    deadline = time.monotonic() + APPEARS_S
    while len(run.meta().get("resumed") or []) == before and time.monotonic() < deadline:
        if not job.is_running and len(run.meta().get("resumed") or []) == before:
            raise RunError("\n".join(local.tail(run.path, 3)) or f"{run.id} did not resume")
        time.sleep(0.05)
    return run, notes


def stop_training(desk: AgentDesk, run: str, ctx: Context, force: bool = False) -> dict[str, Any]:
    """Stop a training, whoever started it: it saves a checkpoint, ends, and can be resumed.
    force: kill it without saving. run: also the id of an experiment or a search."""
    desk.require_write(ctx)
    try:
        found = desk.run(run)
    except RunError as no_run:
        with desk.changing(ctx, "stop_training", {"run": run}) as outcome:
            outcome |= stop_experiment(desk, run, no_run)
        return outcome
    with desk.changing(ctx, "stop_training", {"run": found.id, "force": force}) as outcome:
        outcome["status"] = trainings.stop(found, force=force, wait_s=STOPS_S)
    return summary(found) | {"progress": progress(query.get_run(found))}


async def wait_for(
    desk: AgentDesk,
    run: OneRun,
    until: Literal["end", "evaluation"] = "end",
    env_steps: int = 0,
    seconds: float = 30,
) -> dict[str, Any]:
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
    return data | (summary(run) if has_ended else {}) | {"progress": progress(now)}


def _evaluations(run: Run) -> int:
    return len(query.get_events(run, "eval"))


def edit_run(
    desk: AgentDesk,
    run: OneRun,
    ctx: Context,
    add_tags: Sequence[str] = (),
    remove_tags: Sequence[str] = (),
    note: str | None = None,
    set: dict[str, Any] = NO_FIELDS,
    at_env_steps: int = 0,
) -> dict[str, Any]:
    """Tag a run or write its note ("" removes it). set: change config fields while it trains,
    such as {"policy_lr": 0.0001}, from the next epoch or from at_env_steps on."""
    desk.require_write(ctx)
    given: dict[str, Any] = {"run": run.id, "add_tags": add_tags, "remove_tags": remove_tags}
    given |= {"note": note, "set": set, "at_env_steps": at_env_steps}
    with desk.changing(ctx, "edit_run", given) as outcome:
        if set:
            fields, _ = desk.within_budget(checked_overrides(set, desk.root), 0)
            words = [f"{key}={text}" for key, text in yaml_texts(fields).items()]
            words += ["--at", str(at_env_steps)] if at_env_steps else []
            said = output_of("set", str(run.path.absolute()), *words, "--json")
            names = ("applied", "refused", "changed", "env_steps")
            outcome["set"] = {key: said[key] for key in said if key in names}
        if add_tags or remove_tags:
            change_tags(run, add_tags, remove_tags)
        if note is not None:
            set_note(run, note)
        outcome["run"] = run.id
    return summary(run) | outcome


def publish_run(
    desk: AgentDesk,
    run: OneRun,
    ctx: Context,
    repo: str = "",
    public: bool = False,
    dry_run: bool = True,
) -> dict[str, Any]:
    """Put a run with its model card on the Hugging Face Hub, private unless public. A dry run
    lists all that would leave the machine; show that to the person first."""
    desk.require_write(ctx)
    if repo and not _REPO.fullmatch(repo):
        raise RunError(f"{repo[:60]!r} is not a repository: expected USER/NAME")
    words = ["publish", str(run.path.absolute()), "--json"]
    words += ["--repo", repo] if repo else []
    words += ["--public"] if public else []
    shown: dict[str, Any]
    if dry_run:
        shown = output_of(*words, "--dry-run", timeout_s=PUBLISH_S)
        return shown
    given = {"run": run.id, "repo": repo, "public": public}
    with desk.changing(ctx, "publish_run", given) as outcome:
        shown = output_of(*words, timeout_s=PUBLISH_S)
        outcome["repo"] = shown.get("repo") or repo
    return shown
