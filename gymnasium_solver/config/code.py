"""The Python modules that a config makes the program import."""

from collections.abc import Mapping
from typing import Any


def code_named(fields: Mapping[str, Any]) -> list[str]:
    """Modules of `plugins`, of an `env_id` such as module:Env-v0, and of wrappers given by import
    path. `fields` may be raw: what has another type is left to the validation of the config."""
    names = named_plugins(fields)
    env_id = fields.get("env_id")
    if isinstance(env_id, str) and ":" in env_id:
        names.append(env_id.rpartition(":")[0])
    for field in ("env_wrappers", "wrappers"):
        wrappers = fields.get(field)
        for wrapper in wrappers if isinstance(wrappers, list | tuple) else []:
            name = wrapper.get("id") if isinstance(wrapper, Mapping) else wrapper
            if isinstance(name, str) and (":" in name or "." in name):
                names.append(name.partition(":")[0] if ":" in name else name.rpartition(".")[0])
    return sorted(set(names))


def named_plugins(fields: Mapping[str, Any]) -> list[str]:
    """The names in a raw `plugins` field."""
    value = fields.get("plugins")
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return []
    return [item for item in items if isinstance(item, str)]
