"""Named sets of fields to lay over any config, and keys that match several fields.

    gsolve train CartPole-v1:ppo --overlay quick wide

Overlays stand under `_overlays:` in the config's own file, in `_overlays.yaml` of ./configs or of a
folder in $GSOLVE_CONFIGS, or among those shipped; the first that has the name is used. They apply
in the order given, after the variant and before flags.

A key between slashes is a regular expression: `/.*_lr/: 1e-4` sets every field that it matches
whole. In an overlay, a flag or `--set` it replaces values; in a file it sets the matching fields
that the file does not set itself.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.config.find import config_folders
from gymnasium_solver.config.schema import canonical
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import did_you_mean

FILE = "_overlays.yaml"
KEY = "_overlays"


def find_overlays(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """All overlays by name, those of the config file in `path` first."""
    files = [path] if path is not None else []
    files += [folder / FILE for folder in config_folders()]
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        if not file.is_file():
            continue
        content, _ = read_file(file, None)
        block = content.get(KEY) if isinstance(content, dict) else None
        if block is None:
            continue
        if not isinstance(block, dict):
            raise ConfigError(f"{file}: {KEY} must be a block of overlays by name")
        for name, lines in block.items():
            if not isinstance(lines, dict):
                raise ConfigError(f"{file}: the overlay {name} must be a block of fields")
            found.setdefault(str(name), {str(key): value for key, value in lines.items()})
    return found


def overlay_changes(names: Iterable[str], path: Path | None) -> dict[str, Any]:
    """The fields that the named overlays set; a later one wins."""
    known = find_overlays(path)
    changes: dict[str, Any] = {}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"Known: {', '.join(known) or 'none'}."
            raise ConfigError(f"there is no overlay {name!r}. {hint}")
        lines = known[name]
        # A pattern of a later overlay also replaces what an earlier one set by name.
        changes = {key: value for key, value in changes.items() if key not in lines}
        changes |= canonical(lines)
    return changes


def is_pattern(key: str) -> bool:
    return len(key) > 2 and key[0] == key[-1] == "/"


def expanded(changes: Mapping[str, Any], fields: Iterable[str], what: str) -> dict[str, Any]:
    """Patterns replaced by the fields they match, in order: a later line wins over an earlier one.
    ConfigError if one matches nothing."""
    names, result = list(fields), {}
    for key, value in changes.items():
        if not is_pattern(key):
            result[key] = value
            continue
        try:
            pattern = re.compile(key[1:-1])
        except re.error as error:
            raise ConfigError(f"{key} is not a regular expression: {error}") from None
        matches = [name for name in names if pattern.fullmatch(name)]
        if not matches:
            raise ConfigError(f"{key} matches no field of {what}")
        result |= dict.fromkeys(matches, value)
    return result
