"""From a name or a file, and overrides, to a checked Config.

    load_config("CartPole-v1:ppo")
    load_config("CartPole-v1", "ppo", overrides={"policy_lr": "lin_0.001", "env_kwargs.x": 1})
    load_config("my/config.yaml:ppo_small", fill={"lr": "1e-3"})
    load_config("runs/<id>/config.yaml")

A file has base fields at the top and variants below:

    env_id: CartPole-v1
    n_envs: 8
    ppo: {n_steps: 32, policy_lr: lin_0.001}
    ppo_wide: {hidden_dims: [256, 256]}

or keeps the shared part in a `_base:` block, with or without `<<: *base`; other keys that begin
with `_` are templates. A file without variants is one config (as a run's config.yaml is). Overrides
are put among the lines of the file before anything is checked, so they mean what the same lines
would mean there.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymnasium_solver.config.find import (
    SUFFIXES,
    ConfigEntry,
    ConfigFile,
    find_configs,
    locate,
    read_config_file,
)
from gymnasium_solver.config.schema import ALIASES, Config, canonical
from gymnasium_solver.config.spec import Spec
from gymnasium_solver.config.yaml_file import dump_yaml, parse_value, unfilled
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.plugins import import_plugins, see_working_folder
from gymnasium_solver.suggest import did_you_mean

__all__ = [
    "ConfigEntry",
    "build_config",
    "config_dict",
    "dump_config",
    "find_configs",
    "json_schema",
    "load_config",
    "parse_value",
]


def load_config(
    target: str,
    variant: str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    fill: Mapping[str, str] | None = None,
) -> Config:
    """Read, fill, override and check a config.

    `overrides` maps fields, or places inside one such as `env_kwargs.state`, to values. `fill` maps
    the names of `${...}` placeholders to text; a name that is no placeholder of the file overrides
    the field of that name, which is what `--set name=value` does.
    """
    try:
        path, variant = locate(target, variant)
    except ConfigError as error:
        settings = {key: parse_value(str(text)) for key, text in (fill or {}).items()}
        return _load_unlisted(target, variant, {**settings, **(overrides or {})}, error)
    file = read_config_file(path, fill)
    section = file.section(_choose_variant(file, variant))
    rest = {key: parse_value(str(text)) for key, text in (fill or {}).items()
            if key not in file.placeholders}  # fmt: skip
    where = f"{target}:{variant}" if variant and not target.endswith(f":{variant}") else target
    with _told_where(where if path.name in where else f"{where} ({path.name})"):
        section = apply_overrides(section, {**rest, **(overrides or {})})
        missing = sorted(set(unfilled(section)))
        if missing:
            example = " ".join(f"--set {name}=VALUE" for name in missing)
            names = ", ".join(f"${{{name}}}" for name in missing)
            raise ConfigError(f"{names} must be filled: add {example}")
        return build_config(section)


def _load_unlisted(
    target: str, variant: str | None, overrides: dict[str, Any], not_found: ConfigError
) -> Config:
    """An environment that no file is about, with an algorithm named by `algo_id` or after a colon:
    fields that suit its spaces."""
    from gymnasium_solver.algos import ALGOS

    if Path(target).suffix in SUFFIXES:
        raise not_found
    entries = find_configs()
    algo_id = overrides.get("algo_id", variant)
    head, _, tail = target.rpartition(":")
    if algo_id is None and head and tail in ALGOS:
        target, algo_id = head, tail
        if any(entry.env_id == target for entry in entries):
            raise not_found  # its variants are known, this is none of them
    for entry in entries:
        if (entry.env_id, entry.variant) == (target, algo_id):
            return load_config(target, entry.variant, overrides=overrides)
    if algo_id is None:
        if not re.search(r"-v\d+$", target) or "has no variant" in str(not_found):
            raise not_found
        raise ConfigError(f"{not_found}. Or name an algorithm: --algo-id ppo")
    with _told_where(f"{target}:{algo_id} (no config)"):
        fields = apply_overrides({"env_id": target, "algo_id": algo_id}, overrides)
        build_config(fields)  # mistakes in the fields are told before those of the environment
        from gymnasium_solver.envs.defaults import default_fields

        try:
            chosen = default_fields(target, str(algo_id), fields)
        except EnvError as error:
            raise ConfigError(f"{not_found}; and no environment either: {error}") from error
        names = {"project_id": target.replace("/", "-").replace(":", "-"), "variant": algo_id}
        return build_config({**names, **chosen, **fields})


def build_config(data: Mapping[str, Any]) -> Config:
    """A checked Config of the class that `algo_id` names, from plain fields and values."""
    # Imported here: config is below the algorithms, and they are below everything heavy.
    from gymnasium_solver.algos import ALGOS, algo_class
    from gymnasium_solver.envs.suites.game_options import fill_defaults

    data = fill_defaults(canonical(data))
    algo_id = data.get("algo_id")
    if not isinstance(algo_id, str):
        given = "not given" if algo_id is None else f"got {algo_id!r}"
        raise ConfigError(f"algo_id: {given}, expected one of {', '.join(ALGOS)}")
    config: Config = algo_class(algo_id).Config(**data)
    if config.plugins or ":" in config.env_id:
        see_working_folder()
    import_plugins(config.plugins)
    _check_wrappers(config)
    return config


def apply_overrides(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of raw config lines with some replaced; `env_kwargs.state` reaches inside a block."""
    result = copy.deepcopy(canonical(data))
    plain = {key: value for key, value in overrides.items() if "." not in key}
    result.update(canonical(plain))
    for key, value in overrides.items():
        if "." in key:
            first, *inner = key.split(".")
            _set_inside(result, [ALIASES.get(first, first), *inner], value, key)
    return result


def config_dict(config: Config) -> dict[str, Any]:
    """All fields as JSON can hold them; `build_config` turns it back into an equal config."""
    return config.model_dump(mode="json")


def dump_config(config: Config) -> str:
    """The resolved config as YAML, which loads as an equal config."""
    return dump_yaml(config_dict(config))


def json_schema() -> dict[str, Any]:
    """JSON schema of a config file: fields of all algorithms at the top and in each variant."""
    from gymnasium_solver.algos import ALGOS, algo_class

    fields: dict[str, Any] = {}
    owners: dict[str, list[str]] = {}
    for algo_id in ALGOS:
        schema = algo_class(algo_id).Config.model_json_schema()
        for name, field in schema["properties"].items():
            fields.setdefault(name, field)
            owners.setdefault(name, []).append(algo_id)
    for name, algo_ids in owners.items():
        if len(algo_ids) < len(ALGOS):
            text = fields[name].get("description", "")
            fields[name] = {**fields[name], "description": f"{text} ({', '.join(algo_ids)})"}
    fields["algo_id"] = {**fields["algo_id"], "enum": list(ALGOS)}
    spec = Spec.model_json_schema()
    parts = spec.pop("$defs")
    fields["spec"] = {**spec, "description": fields["spec"]["description"]}
    fields |= {alias: {**fields[name], "deprecated": True} for alias, name in ALIASES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gymnasium-solver config file",
        "description": "Fields shared by all variants, and variants: blocks of fields.",
        "type": "object",
        "properties": fields,
        "patternProperties": {"^_": {"description": "Shared lines (_base) or a template."}},
        "additionalProperties": {"$ref": "#/$defs/variant"},
        "$defs": {
            **parts,
            "variant": {
                "type": ["object", "null"],
                "properties": {name: {"$ref": f"#/properties/{name}"} for name in fields},
                "additionalProperties": False,
            },
        },
    }


def _choose_variant(file: ConfigFile, variant: str | None) -> str | None:
    names = list(file.variants)
    if variant in file.variants:
        return variant
    if not names:
        recorded = file.base.get("variant")
        if variant is None or variant == recorded:
            return None
        raise ConfigError(f"{file.path} has no variants, so {variant!r} cannot be chosen from it")
    if variant is None and len(names) == 1:
        return names[0]
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
        block = _inner(block, key, written, ".".join(keys[:depth]))
    if isinstance(block, dict):
        block[keys[-1]] = value
    else:
        _inner(block, keys[-1], written, ".".join(keys[:-1]))
        block[int(keys[-1])] = value


def _inner(block: Any, key: str, written: str, parent: str) -> Any:
    if isinstance(block, dict):
        return block[key]
    if isinstance(block, list):
        if key.isdigit() and int(key) < len(block):
            return block[int(key)]
        raise ConfigError(
            f"{written}: {parent} has {len(block)} entries, counted from 0; {key!r} is none of them"
        )
    raise ConfigError(f"{written}: {parent} is {block!r}, which has nothing inside to set")


def _check_wrappers(config: Config) -> None:
    if not config.env_wrappers:
        return
    from gymnasium_solver.envs.wrappers import wrapper_names

    known = list(wrapper_names())
    for wrapper in config.env_wrappers:
        if wrapper["id"] not in known:
            hint = did_you_mean(wrapper["id"], known) or f"There are: {', '.join(known)}."
            raise ConfigError(f"env_wrappers: unknown wrapper {wrapper['id']!r}. {hint}")


@contextmanager
def _told_where(where: str) -> Iterator[None]:
    """Puts the config's name over the problems found in it."""
    try:
        yield
    except ConfigError as error:
        lines = "\n".join(f"  {line}" for line in str(error).splitlines())
        raise ConfigError(f"{where}:\n{lines}") from None
