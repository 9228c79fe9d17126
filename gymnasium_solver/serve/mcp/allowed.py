"""What the person who starts the server allows: who may change runs, how many trainings at once,
how long each and all together; and the log of what was changed.

Every change is in `.mcp-log.jsonl` in the folder of the runs, one line before and one after it.
Fields that a client gives are checked: none may import code or open a file.
"""

import getpass
import hmac
import json
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mcp.server.mcpserver import Context

from gymnasium_solver.backends import local
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.env_ids import split_target
from gymnasium_solver.config.find import algo_in_name, find_configs
from gymnasium_solver.config.schema import canonical
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.experiments.experiment import FOLDER, load
from gymnasium_solver.experiments.jobs import list_jobs
from gymnasium_solver.experiments.search.ranges import Choice
from gymnasium_solver.experiments.search.space import read_param
from gymnasium_solver.registry import ALGOS, config_class
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import json_bytes, jsonable, locked
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import utc_now
from gymnasium_solver.serve.commands import Commands, output_of, without_verb
from gymnasium_solver.serve.mcp.budget import Cost, Ledger
from gymnasium_solver.serve.questions import Answer, Desk, Fields, plain_name
from gymnasium_solver.serve.trainings import as_flags, config_named

MAX_TRAININGS = 2
LOG = ".mcp-log.jsonl"
JOBS = ".mcp-jobs"
"""Folder of the processes that coordinate experiments and searches; `slots` of them are in it."""
LOCK_S = 60.0
AGAIN = "it is still at work: ask again with the same arguments"
APPEARS_S = 45.0  # importing torch on a busy machine takes seconds
OUTCOME = ("run", "id", "status", "set", "repo", "kept", "config", "file")
"""What the log keeps of an answer."""
_writing = threading.Lock()


class Refused(GsolveError):
    """The person who started the server does not allow this."""


class Pictured(NamedTuple):
    """An answer with PNG files."""

    data: dict[str, Any]
    images: Sequence[bytes]


def rounded(value: Any) -> Any:
    """Floats to six significant digits: more only costs tokens."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


@dataclass(frozen=True)
class Settings:
    root: Path  # the folder of all runs. Nothing outside it is read or written
    is_read_only: bool = False
    max_trainings: int = MAX_TRAININGS
    """How many runs may train at once in this folder, whoever started them."""
    max_env_steps: int | None = None  # budget of one training
    max_wall_s: float | None = None  # a training is saved and stopped after this time
    total_env_steps: int | None = None
    """Budget of all trainings that this server starts (budget.py)."""
    total_train_s: float | None = None  # the same in time of training
    token: str | None = None  # over HTTP only a request with this bearer token may change anything
    transport: str = "stdio"
    allow_publish: bool = False  # whether runs may be sent elsewhere: to the Hub, to W&B
    is_structured: bool = False
    """Whether answers have a copy as JSON, for programs. A model reads the text."""

    def budget(self) -> str:
        """The limits in words, for the model."""
        if self.is_read_only:
            return "This server is read-only: nothing can be started, stopped or changed."
        parts = [f"at most {self.max_trainings} trainings at once"]
        if self.max_env_steps is not None:
            parts.append(f"at most {self.max_env_steps:,} env steps per training")
        if self.max_wall_s is not None:
            parts.append(f"a training is saved and stopped after {time_text(self.max_wall_s)}")
        total = [f"{self.total_env_steps:,} env steps"] if self.total_env_steps is not None else []
        if self.total_train_s is not None:
            total.append(f"{time_text(self.total_train_s)} of training")
        if total:
            parts.append(f"all trainings of this session together {' and '.join(total)}")
        return f"Budget: {'; '.join(parts)}."


def time_text(seconds: float) -> str:
    """Such as 2 h or 90 s."""
    units = {"h": 3600, "min": 60, "s": 1}
    unit = next(u for u, size in units.items() if seconds % size == 0 or size == 1)
    return f"{seconds / units[unit]:g} {unit}"


class AgentDesk(Desk):
    """The runs of the server's folder, and what a client may do with them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.root)
        self.settings = settings
        limits = (settings.total_env_steps, settings.total_train_s)
        self.ledger = Ledger(Cost(*(math.inf if limit is None else limit for limit in limits)))
        self.commands = Commands()

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
            n = min(wanted, self._free())
            folder = self.root.absolute() / JOBS / name
            if name:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "slots").write_text(str(n))
            yield n, folder

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

    def time_limit(self, n: int) -> float:
        """How long something with `n` trainings at once may take; Refused if no time is left. What
        is left of the total is shared out among all trainings that may run at once."""
        left = self.ledger.left().train_s
        if left <= 0:
            raise Refused("the time of training of this session is used up (--total-time)")
        # Those that run have their share already.
        shares = max(n, self._free()) if math.isfinite(left) else 1
        most = self.settings.max_wall_s
        return min(math.inf if most is None else most, left / shares)

    def argv(self, limit_s: float, *words: str) -> list[str]:
        """A gsolve command that ends after some time (timed.py)."""
        argv = local.gsolve(*words)
        if not math.isfinite(limit_s):
            return argv
        return [*argv[:2], "gymnasium_solver.serve.mcp.timed", str(limit_s), *words]

    def within_budget(
        self, fields: Fields, planned: Any, done: int = 0, n: int = 1
    ) -> tuple[Fields, list[str], Cost]:
        """Fields with the budget of env steps applied to `n` trainings, of which `done` steps are
        done; notes about it, and what is set aside. Asking for more is an error, a config's own
        larger budget is lowered."""
        asked = fields.get("max_env_steps")
        most, left = self.settings.max_env_steps, self.ledger.left().env_steps
        if most is None and not math.isfinite(left):
            return fields, [], Cost()
        if asked is not None and not isinstance(asked, int):
            raise Refused("max_env_steps must be a whole number")
        wanted = math.inf if not isinstance(planned, int) else planned
        steps, notes = wanted if asked is None else asked, []
        if most is not None and steps > most:
            if asked is not None:
                raise Refused(f"max_env_steps {asked:,} is over the server's budget of {most:,}")
            steps = most
        if left <= 0 and steps > done:
            raise Refused("the env steps of this session are used up (--total-env-steps)")
        if n * (steps - done) > left:
            each = int(left // n) + done
            if asked is not None or n > 1:
                raise Refused(
                    f"{n} x {steps - done:,} env steps are over the {int(left):,} that are left of "
                    f"{self.settings.total_env_steps:,}: give max_env_steps up to {each:,}"
                    + ", or fewer trainings"
                    * (n > 1)
                )
            steps = each
        if asked is None and steps < wanted:
            fields = fields | {"max_env_steps": int(steps)}
            notes = [f"max_env_steps lowered to {int(steps):,} (budget)"]
        return fields, notes, Cost(n * (steps - done))

    def told(self, wait_s: float, *words: str) -> Answer:
        """The JSON that a gsolve command prints; if it takes longer, how to ask again."""
        has_ended, lines = self.commands.answer(local.gsolve(*words), wait_s)
        if not has_ended:
            return {"done": False, "note": AGAIN}
        return {"done": True} | json.loads("\n".join(lines))

    def left(self) -> Answer:
        """What is left of the totals, for answers."""
        steps, train_s = self.ledger.left()
        told: Answer = {"env_steps": int(steps)} if math.isfinite(steps) else {}
        if math.isfinite(train_s):
            told["hours"] = round(train_s / 3600, 3)
        return {"left_of_the_budget": told} if told else {}


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


# --- what clients ask for


def appeared(job: local.Job, made: Callable[[], str | None], is_new: bool = False) -> str:
    """The name of what a job makes, once it exists; the job's own message if it fails before.
    `is_new`: there is nothing but the job in its folder."""
    deadline = time.monotonic() + APPEARS_S
    while True:
        is_running = job.is_running
        if (name := made()) is not None:
            return name
        if not is_running:
            text = "\n".join(local.tail(job.folder, 8)) or "it printed nothing"
            if is_new:
                shutil.rmtree(job.folder, ignore_errors=True)
            raise RunError(without_verb(text))
        if time.monotonic() > deadline:
            local.kill(job.folder)
            raise RunError(
                f"{job.folder.name} did not begin within {APPEARS_S:g} s and was stopped"
            )
        time.sleep(0.05)


def shown_config(config: str, fields: Mapping[str, Any], root: Path) -> Answer:
    """All fields of a config that a client named, with these changes, which were checked."""
    target = checked_config(with_algorithm(config, dict(fields)), root)
    flags = as_flags(yaml_texts(fields))
    found = output_of("show", target, "--json", *flags)
    if not isinstance(found, dict):
        raise ConfigError(f"{config} is not a config")
    return found


def budgeted(
    desk: AgentDesk, configs: Sequence[str], fields: Fields, n_each: int = 1
) -> tuple[Fields, list[str], Cost]:
    """Fields with the budget of env steps applied to `n_each` trainings of some configs; notes
    about it, and what is set aside."""
    limits = (desk.settings.max_env_steps, desk.settings.total_env_steps)
    notes, cost = list[str](), Cost()
    for config in configs if any(limit is not None for limit in limits) else ():
        planned = shown_config(config, fields, desk.root).get("max_env_steps")
        fields, more, taken = desk.within_budget(fields, planned, n=n_each * len(configs))
        notes += more
        cost = max(cost, taken)
    return fields, notes, cost


def with_algorithm(config: str, fields: Fields) -> str:
    """The config to which fields are applied: another algorithm than the variant's begins with its
    own defaults, not with what is tuned for the variant."""
    env_id, variant = split_target(config)
    if variant is None or config.startswith("run:") or not isinstance(fields.get("algo_id"), str):
        return config
    return config if algo_in_name(variant) == fields["algo_id"] else env_id


def differing_fields(fields: Mapping[str, Any]) -> Answer:
    """The fields of a config whose values are not the algorithm's defaults; all of them for an
    algorithm of a plugin, which is not imported here."""
    if fields.get("algo_id") not in ALGOS:
        return dict(fields)
    declared = config_class(fields["algo_id"])
    defaults = declared.model_construct(env_id="").model_dump(mode="json")
    always = ("env_id", "algo_id", "max_env_steps", "seed")
    named = {n: v for n, v in fields.items() if n not in ("variant", "project_id")}
    return {n: v for n, v in named.items() if n in always or v != defaults.get(n)}


@cache
def field_docs() -> dict[str, str]:
    """What each field of a config means."""
    return {
        name: " ".join(str(field.get("description", "")).split())[:400]
        for name, field in output_of("schema")["properties"].items()
    }


def yaml_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """The texts that YAML reads as these values."""
    return {
        name: value if isinstance(value, str) and parse_value(value) == value else json.dumps(value)
        for name, value in fields.items()
    }


def checked_config(config: str, root: Path) -> str:
    """What gsolve takes for a config that a client named. ConfigError if that could be a module:
    `module:Env-v0` imports it, and so does the search for what a lone `module` registers."""
    target = config_named(config, root)
    if target != config.strip():
        return target  # the config of a run
    head, tail = split_target(target)
    if "/" in head and algo_in_name(tail or "") is None:
        head = head.rpartition("/")[2]  # Gymnax/module:Class
    if re.fullmatch(r"[^\W\d]\w*(\.\w+)*", head):
        known = {word for entry in find_configs() for word in (entry.name, entry.env_id)}
        known |= {split_target(word)[0] for word in known}
        if head.lower() not in {word.lower() for word in known}:
            raise ConfigError(
                f"{config!r} is no config, and {head} may be a module: code is not imported over "
                "MCP. list_configs has what can be trained"
            )
    return target


def checked_ranges(search: Mapping[str, str]) -> None:
    """ConfigError if a range of a search is none, or names code among its values."""
    for name, text in search.items():
        param = read_param(f"{name}={text}")
        if isinstance(param.distribution, Choice):
            for value in param.distribution.values:
                checked_overrides({param.name: value}, Path())


def checked_overrides(overrides: Mapping[str, Any], root: Path) -> Answer:
    """Fields to change, without any that would import code or open a file outside the runs."""
    fields = canonical({plain_name(key, "field"): value for key, value in overrides.items()})
    for key, value in fields.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]*", key):
            raise ConfigError(f"{key[:60]!r} is not a field")
        if key != "init_from_run" and (path := _path_in(value)) is not None:
            raise ConfigError(f"{key}: the path {path[:80]!r} is not accepted over MCP")
    if code := code_named(fields):
        raise ConfigError(
            f"{', '.join(code)}: code is not imported over MCP; put it into a config file"
        )
    if (origin := fields.get("init_from_run")) is not None:
        found = resolve_checkpoint(plain_name(origin, "init_from_run"), root, allow_paths=False)
        fields["init_from_run"] = str(found.path.absolute())
    return fields


def _path_in(value: Any) -> str | None:
    """A text inside a value that leads out of the working folder."""
    if isinstance(value, str):
        is_path = value.startswith(("/", "~", "\\"))
        return value if is_path or {".", ".."} & set(re.split(r"[/\\]", value)) else None
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(items, bytes) or not hasattr(items, "__iter__"):
        return None
    return next((found for item in items if (found := _path_in(item)) is not None), None)
