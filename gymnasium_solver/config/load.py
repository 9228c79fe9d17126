"""Config files and overrides, below the checks of training/prepare.py.

A file has base fields at the top and variants below:

    env_id: CartPole-v1
    n_envs: 8
    ppo: {n_steps: 32, policy_lr: lin_0.001}
    ppo_wide: {hidden_dims: [256, 256]}

or keeps the shared part in a `_base:` block, with or without `<<: *base`. Other keys that begin
with `_` are templates. A file without variants is one config (a run's config.yaml is one).
Overrides replace lines of the file before anything is checked, so they mean what the same lines
would mean there.

docs/config.md#overlays-and-patterns says what overlays and keys between slashes mean.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gymnasium_solver.config.find import DEFAULT_ALGO, ConfigFile, config_folders
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import ALIASES, Config, canonical, layered
from gymnasium_solver.config.types import DEEPEST, is_too_deep
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.suggest import check_known, did_you_mean


def apply_overrides(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of raw config lines with some replaced; `env_kwargs.state` reaches inside a block."""
    plain = {key: value for key, value in overrides.items() if "." not in key}
    result = layered(copy.deepcopy(canonical(data)), canonical(plain))
    for key, value in overrides.items():
        if "." in key:
            first, *inner = key.split(".")
            if len(inner) >= DEEPEST or is_too_deep(value):
                raise ConfigError(f"{key[:40]}...: nested more than {DEEPEST} levels deep")
            _set_inside(result, [ALIASES.get(first, first), *inner], value, key)
    return result


def config_dict(config: Config) -> dict[str, Any]:
    """All fields as JSON values; `build_config` turns them back into an equal config."""
    return config.model_dump(mode="json")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Fields with different values, as [before, after]."""
    return {
        name: [before.get(name), after.get(name)]
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }


def dump_config(config: Config) -> str:
    """The resolved config as YAML, which loads as an equal config."""
    return dump_yaml(config_dict(config))


def choose_variant(file: ConfigFile, variant: str | None) -> str | None:
    """The variant of the file that is meant, or None for a file without variants."""
    names = list(file.variants)
    if variant in file.variants:
        return variant
    if not names:
        recorded = file.base.get("variant")
        if variant is None or variant == recorded:
            return None
        raise ConfigError(f"{file.path} has no variants, so {variant!r} cannot be chosen from it")
    if variant is None and (len(names) == 1 or DEFAULT_ALGO in names):
        return names[0] if len(names) == 1 else DEFAULT_ALGO
    listing = ", ".join(names)
    if variant is None:
        raise ConfigError(
            f"{file.path} needs a variant, as in {file.path}:{names[0]}; it has: {listing}"
        )
    hint = f"It has: {listing}. {did_you_mean(variant, names)}".strip()
    raise ConfigError(f"{file.path} has no variant {variant!r}. {hint}")


def _set_inside(data: dict[str, Any], keys: list[str], value: Any, written: str) -> None:
    block: Any = data
    for depth, key in enumerate(keys[:-1]):
        if isinstance(block, dict) and block.get(key) is None:
            block[key] = {}
        elif depth == 0:
            block[key] = _as_block(block[key], keys[1])
        block = _inner(block, key, written, ".".join(keys[:depth]))
    if isinstance(block, dict):
        block[keys[-1]] = value
    else:
        _inner(block, keys[-1], written, ".".join(keys[:-1]))
        block[int(keys[-1])] = value


def _as_block(value: Any, inner: str) -> Any:
    """The value of a field as a block that has a place `inner`, if it can be: a schedule in short
    form, or a constant that gets an `end`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and inner == "end":
        return {"start": value}
    if isinstance(value, str) and value.startswith("lin_"):
        with suppress(ValueError):
            return {"start": Schedule.parse(value).start, "end": 0.0}
    return value


def _inner(block: Any, key: str, written: str, parent: str) -> Any:
    if isinstance(block, dict):
        return block[key]
    if isinstance(block, list):
        if key.isdecimal() and int(key) < len(block):
            return block[int(key)]
        raise ConfigError(
            f"{written}: {parent} has {len(block)} entries, counted from 0; {key!r} is not one of "
            "them"
        )
    raise ConfigError(f"{written}: {parent} is {block!r}, not a block or a list")


# -- overlays and patterns ---------------------------------------------------------------------

_OVERLAYS = "_overlays"  # a key of a file, and the name of a file


def find_overlays(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """All overlays by name, those of the config file in `path` first."""
    files = [path] if path is not None else []
    files += [folder / f"{_OVERLAYS}.yaml" for folder in config_folders()]
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        if not file.is_file():
            continue
        content, _ = read_file(file, None)
        block = content.get(_OVERLAYS) if isinstance(content, dict) else None
        if block is None:
            continue
        if not isinstance(block, dict):
            raise ConfigError(f"{file}: {_OVERLAYS} must be a block of overlays by name")
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
        check_known(ConfigError, name, known, f"there is no overlay {name!r}", "Known:")
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
        with told_as(ConfigError, f"{key} is not a regular expression", re.error):
            pattern = re.compile(key[1:-1])
        matches = [name for name in names if pattern.fullmatch(name)]
        if not matches:
            raise ConfigError(f"{key} matches no field of {what}")
        result |= dict.fromkeys(matches, value)
    return result
