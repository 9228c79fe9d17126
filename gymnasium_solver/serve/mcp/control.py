"""Tools that change something: start, stop and wait for a training, edit a run."""

import hmac
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.runs import machine, query
from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.run import Run, is_alive_here, is_run, live_status
from gymnasium_solver.serve.mcp import facts
from gymnasium_solver.serve.mcp.answers import answer
from gymnasium_solver.serve.mcp.audit import audited
from gymnasium_solver.serve.mcp.commands import as_flags, changed_live, shown_config
from gymnasium_solver.serve.mcp.names import NO_FIELDS, checked_overrides, config_named, run_named
from gymnasium_solver.serve.mcp.places import a_slot, new_folder
from gymnasium_solver.serve.mcp.settings import Settings

APPEARS_S = 45.0  # importing torch on a busy machine takes seconds
STOPS_S = 25.0
MOST_WAIT_S = 50.0  # clients give up after a minute


class Refused(GsolveError):
    """The person who started the server does not allow this."""


class ControlTools:
    def __init__(self, settings: Settings) -> None:
        self.settings, self.root = settings, settings.root
        self.stop_experiment: Callable[[str], tuple[str, str]] | None = None
        """Stops an experiment by its name; its id and what became of it."""

    def start_training(
        self,
        ctx: Context,
        config: str = "",
        overrides: dict[str, Any] = NO_FIELDS,
        max_env_steps: int = 0,
        seed: int = -1,
        name: str = "",
        resume: str = "",
        tags: Sequence[str] = (),
        note: str = "",
    ) -> CallToolResult:
        """Start a training in the background and return its run id. It outlives this server.
        config: <env>:<variant>, or a run to repeat its config. overrides: any config fields, such
        as {"policy_lr": 0.001, "hidden_dims": [64, 64]}. resume: continue this run exactly,
        instead of a config. name: of the run's folder."""
        arguments = {k: v for k, v in locals().items() if k not in ("self", "ctx")}
        self.require_write(ctx)
        if bool(config) == bool(resume):
            raise RunError("give either config or resume")
        with self.audited(ctx, "start_training", arguments) as outcome:
            fields = checked_overrides(overrides, self.root)
            if seed >= 0:
                fields["seed"] = seed
            if max_env_steps:
                fields["max_env_steps"] = max_env_steps
            if resume:
                run, notes = self._resume(run_named(resume, self.root), fields)
            else:
                run, notes = self._start(config, fields, name)
            if tags:
                change_tags(run, tags)
            if note:
                set_note(run, note)
            outcome["run"] = run.id
        status = live_status(run.meta())
        return answer(
            {"run": run.id, "status": status, "notes": notes, "next": "wait_for, get_run"}
        )

    def _start(self, config: str, fields: dict[str, Any], name: str) -> tuple[Run, list[str]]:
        target = config_named(config, self.root)
        fields, notes = self.budgeted([config], fields)
        with a_slot(self.root, self.settings.max_trainings):
            folder = new_folder(self.root, name, config)
            words = [target, "--run-dir", str(folder), "--quiet", "--no-keys", *as_flags(fields)]
            job = local.start(self.argv("train", *words), folder)
        return self._appeared(job), notes

    def _resume(self, run: Run, fields: dict[str, Any]) -> tuple[Run, list[str]]:
        if is_alive_here(run.meta()):
            raise RunError(f"{run.id} is running; stop_training stops it")
        local.wait(run.path, STOPS_S)  # its process may still be ending
        saved = query.get_config(run).get("max_env_steps")
        fields, notes = self._within_budget(fields, saved)
        before = len(run.meta().get("resumed") or [])
        with a_slot(self.root, self.settings.max_trainings):
            words = ["--resume", run.id, "--runs-dir", str(self.root.absolute()), "--quiet"]
            job = local.start(self.argv("train", *words, "--no-keys", *as_flags(fields)), run.path)
        deadline = time.monotonic() + APPEARS_S
        while len(run.meta().get("resumed") or []) == before and time.monotonic() < deadline:
            if not job.is_running and len(run.meta().get("resumed") or []) == before:
                raise RunError("\n".join(local.tail(run.path, 3)) or f"{run.id} did not resume")
            time.sleep(0.05)
        return run, notes

    def budgeted(
        self, configs: Sequence[str], fields: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """Fields with the budget of env steps applied; notes about it."""
        notes: list[str] = []
        if self.settings.max_env_steps is None:
            return fields, notes
        for config in configs:
            shown = shown_config(config, fields, self.root)
            fields, more = self._within_budget(fields, shown.get("max_env_steps"))
            notes += more
        return fields, notes

    def _within_budget(
        self, fields: dict[str, Any], planned: Any
    ) -> tuple[dict[str, Any], list[str]]:
        """Fields with the budget applied: asking for more is an error, a config's own larger
        budget is lowered."""
        most = self.settings.max_env_steps
        if most is None:
            return fields, []
        asked = fields.get("max_env_steps")
        if isinstance(asked, int) and asked > most:
            raise Refused(f"max_env_steps {asked:,} is over the server's budget of {most:,}")
        if asked is None and (not isinstance(planned, int) or planned > most):
            return fields | {"max_env_steps": most}, [f"max_env_steps lowered to {most:,} (budget)"]
        if asked is not None and not isinstance(asked, int):
            raise Refused(f"max_env_steps must be a whole number up to {most:,}")
        return fields, []

    def argv(self, *words: str) -> list[str]:
        if self.settings.max_wall_s is None:
            return local.gsolve(*words)
        timed = "gymnasium_solver.serve.mcp.timed"
        return [sys.executable, "-m", timed, str(self.settings.max_wall_s), *words]

    def _appeared(self, job: local.Job) -> Run:
        """The run of a job, once its folder is one; the job's own message if it fails before."""
        deadline = time.monotonic() + APPEARS_S
        run = Run(job.folder)
        while not is_run(job.folder):
            if not job.is_running and not is_run(job.folder):
                text = "\n".join(local.tail(job.folder, 8)) or "it printed nothing"
                shutil.rmtree(job.folder, ignore_errors=True)
                raise RunError(text.removeprefix("gsolve train: "))
            if time.monotonic() > deadline:
                local.kill(job.folder)
                raise RunError(f"{run.id} did not begin within {APPEARS_S:g} s and was stopped")
            time.sleep(0.05)
        return run

    def stop_training(self, run: str, ctx: Context, force: bool = False) -> CallToolResult:
        """Stop a training, whoever started it: it saves a checkpoint, ends, and can be resumed.
        force: kill it without saving. run: also the id of an experiment or a search."""
        self.require_write(ctx)
        try:
            found = run_named(run, self.root)
        except RunError as no_run:
            return self._stop_experiment(run, ctx, no_run)
        with self.audited(ctx, "stop_training", {"run": found.id, "force": force}) as outcome:
            outcome["status"] = self._stop(found, force)
        return answer(facts.summary(found) | {"progress": facts.progress(found)})

    def _stop_experiment(self, name: str, ctx: Context, no_run: RunError) -> CallToolResult:
        with self.audited(ctx, "stop_training", {"run": name}) as outcome:
            try:
                assert self.stop_experiment is not None
                found, status = self.stop_experiment(name)
            except LookupError:
                raise no_run from None
            outcome |= {"id": found, "status": status}
        return answer({"id": found, "status": status})

    def _stop(self, run: Run, force: bool) -> str:
        meta = run.meta()
        if not is_alive_here(meta):
            where = (meta.get("machine") or {}).get("hostname")
            status = live_status(meta)
            if status in ("created", "running"):
                raise RunError(f"{run.id} is {status} on {where}: stop it there")
            raise RunError(f"{run.id} is not running: {status}")
        pid = int(meta["pid"])
        try:
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise RunError(f"{run.id} belongs to another user (process {pid})") from None
        deadline = time.monotonic() + STOPS_S
        while machine.is_alive(pid, meta.get("pid_started")) and time.monotonic() < deadline:
            time.sleep(0.05)
        return live_status(run.meta())

    async def wait_for(
        self,
        run: str,
        until: Literal["end", "evaluation"] = "end",
        env_steps: int = 0,
        seconds: float = 30,
    ) -> CallToolResult:
        """Wait until a run ends, has a new evaluation or reaches env_steps, at most 50 seconds;
        then its progress. Call it again while done is false."""
        found = run_named(run, self.root)
        wait_s = max(0.0, min(seconds, MOST_WAIT_S)) if seconds == seconds else 0.0
        before = await anyio.to_thread.run_sync(_evaluations, found)
        deadline = time.monotonic() + wait_s
        while True:
            now = await anyio.to_thread.run_sync(query.get_run, found)
            has_ended = now.status in facts.ENDED
            has_reached = bool(env_steps) and now.env_steps >= env_steps
            if not has_ended and until == "evaluation":
                has_reached |= await anyio.to_thread.run_sync(_evaluations, found) > before
            if has_ended or has_reached or time.monotonic() >= deadline:
                break
            await anyio.sleep(min(0.5, max(0.0, deadline - time.monotonic())))
        data = {"run": found.id, "done": has_ended or has_reached, "status": now.status}
        if has_ended:
            data |= facts.summary(found)
        return answer(data | {"progress": facts.progress(found)})

    def edit_run(
        self,
        run: str,
        ctx: Context,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
        set: dict[str, Any] = NO_FIELDS,
        at_env_steps: int = 0,
    ) -> CallToolResult:
        """Tag a run or write its note ("" removes it). set: change config fields while it trains,
        such as {"policy_lr": 0.0001}, from the next epoch or from at_env_steps on."""
        self.require_write(ctx)
        found = run_named(run, self.root)
        given: dict[str, Any] = {
            "run": found.id,
            "add_tags": add_tags,
            "remove_tags": remove_tags,
            "note": note,
        }
        given |= {"set": set, "at_env_steps": at_env_steps}
        with self.audited(ctx, "edit_run", given) as outcome:
            if set:
                fields, _ = self._within_budget(checked_overrides(set, self.root), 0)
                outcome["set"] = changed_live(found, fields, at_env_steps)
            if add_tags or remove_tags:
                change_tags(found, add_tags, remove_tags)
            if note is not None:
                set_note(found, note)
            outcome["run"] = found.id
        return answer(facts.summary(found) | outcome)

    def audited(
        self, ctx: Context, tool: str, arguments: dict[str, Any]
    ) -> AbstractContextManager[dict[str, Any]]:
        return audited(self.root, ctx, tool, arguments, self.settings.transport)

    def require_write(self, ctx: Context) -> None:
        if self.settings.is_read_only:
            raise Refused("this server is read-only; start it without --read-only to change runs")
        if self.settings.transport == "stdio":
            return
        given = (ctx.headers or {}).get("authorization", "")
        expected = f"Bearer {self.settings.token}"
        if self.settings.token is None or not hmac.compare_digest(
            given.encode(), expected.encode()
        ):
            raise Refused("changing runs over HTTP needs the server's bearer token")


def _evaluations(run: Run) -> int:
    return len(query.get_events(run, "eval"))
