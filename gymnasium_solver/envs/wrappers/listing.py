"""All wrappers with their options, from the registry itself: for the docs and the command line.

for entry in wrapper_catalog():
    print(entry.id, entry.about, [option.name for option in entry.options])
"""

import inspect
from dataclasses import dataclass
from typing import Any

from gymnasium_solver.envs.wrappers import (
    ALIASES,
    LOWERED,
    SHIPPED,
    is_batch_wrapper,
    registered,
    wrapper_class,
)
from gymnasium_solver.envs.wrappers.parameters import options_of, words_for


@dataclass(frozen=True)
class Option:
    name: str
    takes: str
    """The values it takes, in words."""
    default: Any
    """None where there is none: see `is_required`."""
    is_required: bool


@dataclass(frozen=True)
class WrapperEntry:
    id: str
    about: str
    """The first paragraph of its documentation, on one line."""
    options: tuple[Option, ...]
    aliases: tuple[str, ...]
    """Other ids that mean the same."""
    is_shipped: bool
    """False where a plugin registered it."""


def wrapper_catalog() -> list[WrapperEntry]:
    """Every wrapper once: ours in the order of their kinds, then the valid ones of plugins
    (others are reported when a config uses them)."""
    ours = [_entry(name, True) for name in (*SHIPPED, *LOWERED)]
    sound = [name for name in sorted(registered) if is_batch_wrapper(registered[name])]
    return ours + [_entry(name, False) for name in sound]


def _entry(name: str, is_shipped: bool) -> WrapperEntry:
    wrapper = wrapper_class(name)
    paragraph = (inspect.getdoc(wrapper) or "").split("\n\n")[0]
    options = tuple(
        Option(
            option.name,
            words_for(option.annotation),
            None if option.default is option.empty else option.default,
            option.default is option.empty,
        )
        for option in options_of(wrapper).values()
    )
    aliases = tuple(alias for alias, (target, _) in ALIASES.items() if target == name)
    return WrapperEntry(name, " ".join(paragraph.split()), options, aliases, is_shipped)
