"""Blocks inside a config: `intrinsic: {kind: rnd, ...}`, `interventions: [{...}]`.

Such a block is a frozen, strict class of fields like the config itself. A problem in it is reported
in one line that names the key.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.explain import explain

B = TypeVar("B", bound=Fields)


def read_block(cls: type[B], value: Any, shorthand: str | None = None) -> B:
    """The block written as `value`; ValueError says what is wrong. `shorthand`: the key that plain
    text sets."""
    if isinstance(value, cls):
        return value
    if shorthand is not None and isinstance(value, str):
        value = {shorthand: value}
    if not isinstance(value, Mapping):
        keys = ", ".join(cls.model_fields)
        raise ValueError(f"expected a block with the keys {keys}")
    try:
        return cls(**{str(key): item for key, item in value.items()})
    except ValidationError as error:
        lines = explain(cls, error, dict(value)).splitlines()
        raise ValueError("; ".join(lines)) from None


def dump_block(block: Fields | None) -> dict[str, Any] | None:
    """What a block was set to, without its defaults."""
    return None if block is None else block.model_dump(mode="json", exclude_defaults=True)
