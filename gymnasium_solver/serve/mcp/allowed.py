"""What the person who starts the server allows: who may change runs, how many trainings at once,
how long each; and the log of what was changed.

Every change is in `.mcp-log.jsonl` in the folder of the runs, one line before and one after it.
"""

import getpass
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import FOLDER, load
from gymnasium_solver.experiments.jobs import list_jobs
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import json_bytes, jsonable, locked
from gymnasium_solver.runs.run import utc_now
from gymnasium_solver.serve.questions import Answer, Desk, Fields

MAX_TRAININGS = 2
LOG = ".mcp-log.jsonl"
JOBS = ".mcp-jobs"
"""Folder of the processes that coordinate experiments and searches; `slots` of them are in it."""
LOCK_S = 60.0
OUTCOME = ("run", "id", "status", "set", "repo", "kept")
"""What the log keeps of an answer."""
_writing = threading.Lock()


class Refused(GsolveError):
    """The person who started the server does not allow this."""


@dataclass(frozen=True)
class Settings:
    root: Path
    """The folder of all runs. Nothing outside it is read or written."""
    is_read_only: bool = False
    max_trainings: int = MAX_TRAININGS
    """How many runs may train at once in this folder, whoever started them."""
    max_env_steps: int | None = None
    """Budget of one training."""
    max_wall_s: float | None = None
    """A training is saved and stopped after this time."""
    token: str | None = None
    """Over HTTP only a request with this bearer token may change anything."""
    transport: str = "stdio"
    allow_publish: bool = False
    """Whether runs may be sent to the Hub."""

    def budget(self) -> str:
        """The limits in words, for the model."""
        if self.is_read_only:
            return "This server is read-only: nothing can be started, stopped or changed."
        parts = [f"at most {self.max_trainings} trainings at once"]
        if self.max_env_steps is not None:
            parts.append(f"at most {self.max_env_steps:,} env steps per training")
        if self.max_wall_s is not None:
            parts.append(f"a training is saved and stopped after {_duration(self.max_wall_s)}")
        return f"Budget: {'; '.join(parts)}."


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


class AgentDesk(Desk):
    """The runs of the server's folder, and what a client may do with them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.root)
        self.settings = settings

    def change(self, ctx: Context, tool: str, given: Answer, work: Callable[[], Any]) -> Any:
        """Do what changes something, if it is allowed, with a line in the log before and after."""
        self._require_write(ctx)
        change = secrets.token_hex(4)
        given = {key: value for key, value in given.items() if value not in ("", [], (), {}, None)}
        who = _who(ctx, self.settings.transport)
        self._append({"change": change, "tool": tool, "arguments": given, "who": who})
        try:
            done = work()
        except BaseException as error:
            self._append({"change": change, "error": str(error)[:500] or type(error).__name__})
            raise
        told = done if isinstance(done, dict) else done.data
        outcome = {name: told[name] for name in OUTCOME if name in told}
        self._append({"change": change, "outcome": outcome})
        return done

    def _require_write(self, ctx: Context) -> None:
        if self.settings.is_read_only:
            raise Refused("this server is read-only; start it without --read-only to change runs")
        if self.settings.transport == "stdio":
            return
        given = (ctx.headers or {}).get("authorization", "")
        if self.settings.token is None or not hmac.compare_digest(
            given.encode(), f"Bearer {self.settings.token}".encode()
        ):
            raise Refused("changing runs over HTTP needs the server's bearer token")

    def _append(self, entry: Mapping[str, Any]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        line = json_bytes(jsonable({"at": utc_now(), **entry}))
        with _writing, (self.root / LOG).open("ab", buffering=0) as file:
            file.write(line)  # one write: lines of two servers do not mix

    @contextmanager
    def slots(self, wanted: int = 1, name: str = "") -> Iterator[tuple[int, Path]]:
        """The right to start trainings: how many of those wanted may be kept going, and the folder
        of what coordinates them, if it has a name. Servers of one folder take turns."""
        with self._turn():
            n = min(wanted, self._free())
            folder = self.root.absolute() / JOBS / name
            if name:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "slots").write_text(str(n))
            yield n, folder

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + LOCK_S
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.root))
                    break
                except RunError:
                    if time.monotonic() > deadline:
                        raise RunError("another server is starting a training; try again") from None
                    time.sleep(0.05)
            yield

    def _free(self) -> int:
        """How many more trainings may be started; Refused if there is no room."""
        reserved, members = {}, set()
        for folder in sorted((self.root / JOBS).glob("*/")):
            if local.is_running(folder):
                reserved[folder.name] = int((folder / "slots").read_text() or 1)
                with suppress(RunError):  # a search, whose runs are in a folder of its own
                    members |= {m.run for m in load(self.root / FOLDER / folder.name).members}
        training = [run.id for run in self.store.runs() if run.status in ("created", "running")]
        started = [job.name for job in list_jobs(self.root) if job.is_active and job.kind == "run"]
        running = [run for run in dict.fromkeys([*training, *started]) if run not in members]
        n, most = len(running) + sum(reserved.values()), self.settings.max_trainings
        if n >= most:
            names = ", ".join([*running, *reserved][:5])
            raise Refused(
                f"{n} trainings are running, at most {most} at once: {names}. "
                "Wait for one or stop it."
            )
        return most - n

    def argv(self, *words: str) -> list[str]:
        """A gsolve command that ends after the allowed time (timed.py)."""
        argv = local.gsolve(*words)
        if self.settings.max_wall_s is None:
            return argv
        timed = ["gymnasium_solver.serve.mcp.timed", str(self.settings.max_wall_s)]
        return [*argv[:2], *timed, *words]

    def within_budget(self, fields: Fields, planned: Any) -> tuple[Fields, list[str]]:
        """Fields with the budget of env steps applied, and notes about it: asking for more is an
        error, a config's own larger budget is lowered."""
        most, asked = self.settings.max_env_steps, fields.get("max_env_steps")
        if most is None:
            return fields, []
        if asked is None and (not isinstance(planned, int) or planned > most):
            return fields | {"max_env_steps": most}, [f"max_env_steps lowered to {most:,} (budget)"]
        if asked is not None and not isinstance(asked, int):
            raise Refused(f"max_env_steps must be a whole number up to {most:,}")
        if asked is not None and asked > most:
            raise Refused(f"max_env_steps {asked:,} is over the server's budget of {most:,}")
        return fields, []


def _who(ctx: Context, transport: str) -> Answer:
    """The client as it names itself, and the process that serves it."""
    try:
        params = ctx.request_context.session.client_params
    except (AttributeError, ValueError):
        params = None
    info = None if params is None else params.client_info
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return {
        "client": "unnamed" if info is None else f"{info.name} {info.version}"[:120],
        "transport": transport,
        "user": user,
        "host": machine.hostname(),
        "server_pid": os.getpid(),
    }
