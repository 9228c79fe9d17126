"""Names that a client gives: runs of the server's folder, and configs. Paths are refused."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.find import SUFFIXES
from gymnasium_solver.config.schema import canonical
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run
from gymnasium_solver.runs.run import Run, is_run

MOST_RUNS = 20
NO_FIELDS: dict[str, Any] = {}


def run_named(ref: str, root: Path) -> Run:
    return resolve_run(_text(ref, "run"), root, allow_paths=False)


def runs_named(refs: Sequence[str], root: Path) -> list[Run]:
    if not refs:
        raise RunError("no run given; list_runs shows them")
    if len(refs) > MOST_RUNS:
        raise RunError(f"{len(refs)} runs given, at most {MOST_RUNS} at once")
    return [run_named(ref, root) for ref in refs]


def config_named(name: str, root: Path) -> str:
    """What `gsolve train` takes for a config that a client named: `<env>:<variant>`, or a run to
    be repeated."""
    name = _text(name, "config")
    if name.startswith("@") or is_run(root / name.replace("/", "-")):
        return str(run_named(name, root).config_path.absolute())
    stem = name.partition(":")[0]
    if _is_path(name) or Path(stem).suffix in SUFFIXES or Path(name).suffix in SUFFIXES:
        raise ConfigError(
            f"{name!r}: paths are not accepted; give <env>:<variant> (list_configs) or a run"
        )
    if ":" in name.partition(":")[2]:
        raise ConfigError(f"{name!r}: expected <env>:<variant>; list_configs shows them")
    return name


def checked_overrides(overrides: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Fields to change, without any that would import code or open a file outside the runs."""
    fields = canonical({_text(key, "field"): value for key, value in overrides.items()})
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
        found = resolve_checkpoint(_text(origin, "init_from_run"), root, allow_paths=False)
        fields["init_from_run"] = str(found.path.absolute())
    return fields


def _path_in(value: Any) -> str | None:
    """A text inside a value that leads out of the working folder."""
    if isinstance(value, str):
        return value if _is_path(value) else None
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
        return None
    return next((found for item in items if (found := _path_in(item)) is not None), None)


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~", "\\")) or bool({".", ".."} & set(re.split(r"[/\\]", text)))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RunError(f"{what} is empty")
    if len(value) > 300 or any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise RunError(f"{value[:60]!r} is not the name of a {what}")
    return value.strip()
