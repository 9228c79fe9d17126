"""gsolve commands that a client asks for, in a process of their own: the server imports neither
torch nor plugins. Fields that a client gives are checked: none may import code or open a file."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.schema import canonical
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.questions import Answer, Fields, plain_name
from gymnasium_solver.serve.trainings import as_flags, config_named

TIMEOUT_S = 90.0
APPEARS_S = 45.0  # importing torch on a busy machine takes seconds


class CommandError(GsolveError):
    """A gsolve command failed; the message is what it printed."""


def output_of(*words: str, timeout_s: float = TIMEOUT_S) -> Any:
    """The JSON that a gsolve command prints; CommandError with its message if it fails."""
    return json.loads(output_of_argv(local.gsolve(*words), words[0], timeout_s))


def output_of_argv(argv: Sequence[str], verb: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{verb} took longer than {timeout_s:g} s and was stopped") from None
    printed = done.stdout.decode(errors="replace")
    if done.returncode == 0 or (done.returncode == 1 and printed.startswith("{")):
        return printed  # with 1 the answer itself says what failed
    text = done.stderr.decode(errors="replace").strip() or "it printed nothing"
    raise CommandError(text[-2000:].removeprefix(f"gsolve {verb}: "))


def appeared(job: local.Job, made: Callable[[], str | None]) -> str:
    """The name of what a job makes, once it exists; the job's own message if it fails before."""
    deadline = time.monotonic() + APPEARS_S
    while True:
        is_running = job.is_running
        if (name := made()) is not None:
            return name
        if not is_running:
            text = "\n".join(local.tail(job.folder, 8)) or "it printed nothing"
            shutil.rmtree(job.folder, ignore_errors=True)
            raise RunError(re.sub(r"^gsolve \w+: ", "", text))
        if time.monotonic() > deadline:
            local.kill(job.folder)
            raise RunError(
                f"{job.folder.name} did not begin within {APPEARS_S:g} s and was stopped"
            )
        time.sleep(0.05)


def shown_config(config: str, fields: Mapping[str, Any], root: Path) -> Answer:
    """All fields of a config that a client named, with these changes, which were checked."""
    target, flags = config_named(config, root), as_flags(yaml_texts(fields))
    found = output_of("show", target, "--json", *flags)
    if not isinstance(found, dict):
        raise ConfigError(f"{config} is not a config")
    return found


def budgeted(desk: AgentDesk, configs: Sequence[str], fields: Fields) -> tuple[Fields, list[str]]:
    """Fields with the budget of env steps applied to some configs; notes about it."""
    notes: list[str] = []
    for config in configs if desk.settings.max_env_steps is not None else ():
        planned = shown_config(config, fields, desk.root).get("max_env_steps")
        fields, more = desk.within_budget(fields, planned)
        notes += more
    return fields, notes


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
