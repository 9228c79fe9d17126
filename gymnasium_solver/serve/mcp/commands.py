"""gsolve commands in a process of their own: the server imports neither torch nor plugins."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gymnasium_solver.backends.local import gsolve
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError, GsolveError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.mcp.names import checked_overrides, config_named

TIMEOUT_S = 90.0


class CommandError(GsolveError):
    """A gsolve command failed; the message is what it printed."""


def output_of(*words: str, timeout_s: float = TIMEOUT_S) -> str:
    """What a command prints; CommandError with its message if it fails."""
    return output_of_argv(gsolve(*words), words[0], timeout_s)


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


def shown_config(config: str, overrides: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """All fields of a config that a client named, after its overrides."""
    target = config_named(config, root)
    fields = checked_overrides(overrides, root)
    found = json.loads(output_of("show", target, "--json", *as_flags(fields)))
    if not isinstance(found, dict):
        raise ConfigError(f"{config} is not a config")
    return found


def changed_live(run: Run, fields: Mapping[str, Any], at_env_steps: int) -> dict[str, Any]:
    """Change fields of a run while it trains; what `gsolve set` says about it."""
    words = [f"{key}={_value(value)}" for key, value in fields.items()]
    at = ["--at", str(at_env_steps)] if at_env_steps else []
    said = json.loads(output_of("set", str(run.path.absolute()), *words, *at, "--json"))
    return {k: v for k, v in said.items() if k in ("applied", "refused", "changed", "env_steps")}


@cache
def field_docs() -> dict[str, str]:
    """What each field of a config means."""
    schema = json.loads(output_of("schema"))
    return {
        name: " ".join(str(field.get("description", "")).split())[:400]
        for name, field in schema["properties"].items()
    }


def as_flags(fields: Mapping[str, Any]) -> list[str]:
    """`--set key=value` words that mean the same values."""
    words = []
    for key, value in fields.items():
        words += ["--set", f"{key}={_value(value)}"]
    return words


def _value(value: Any) -> str:
    """The text that YAML reads as this value."""
    is_plain = isinstance(value, str) and parse_value(value) == value
    return value if is_plain else json.dumps(value)
