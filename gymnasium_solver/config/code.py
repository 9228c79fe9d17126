"""The Python modules that a config makes the program import, and the C files that it compiles.

`import_code` is the only way from a text in a config to an import: `plugins`, `module:Env-v0`
wherever an id of an environment stands, wrappers and their options by import path. It refuses a
module that the config of a stranger's run names, whichever field that was. `source_file` does so
for a file of C (`c:my_env.c`). `code_named` finds such names beforehand, by their form, so that a
command ends before it has done anything.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from gymnasium_solver.config.env_ids import C_ENV, is_c_file, split_target
from gymnasium_solver.errors import TrustError
from gymnasium_solver.printable import printable

_MODULE = re.compile(r"\w+(\.\w+)*")
# module:Env-v0, module:Class, and Gymnax/module:Class; mc:episode is a kind of return.
_WITH_COLON = re.compile(r"(?!mc:)(?:\w+/)?([^\W\d]\w*(?:\.\w+)*):\w\S*")
# module.Class, in the wrappers only: elsewhere a text with dots is the name of a file or a number.
_WITH_DOTS = re.compile(r"([^\W\d]\w*(?:\.\w+)*)\.\w+")

_strange: dict[str, str] = {}
"""Texts in the configs of strangers that this process has read -> the run."""
_own: set[str] = set()  # texts in configs of the user's own, and in those that were read with trust


def import_code(module: str) -> ModuleType:
    """Import a module that a config names. TrustError if only the config of a stranger names it;
    ImportError and whatever the module raises."""
    if not _MODULE.fullmatch(module):
        raise ImportError(f"{printable(module)!r} is not the name of a module")
    run = next((run for text, run in _strange.items() if _names(text, module)), None)
    if run is not None and not any(_names(text, module) for text in _own):
        raise untrusted(run, [module])
    return import_module(module)


def source_file(name: str) -> Path:
    """A C file that a config names. TrustError if only the config of a stranger names it."""
    run = next((run for text, run in _strange.items() if name in text), None)
    if run is not None and not {name, f"{C_ENV}{name}"} & {split_target(text)[0] for text in _own}:
        raise untrusted(run, [name])
    return Path(name)


def untrusted(where: str, code: Iterable[str], whose: str = "its config names") -> TrustError:
    """The refusal to import what a stranger's config names."""
    return TrustError(
        f"{printable(where)} was not made here, and {whose} code to import: "
        f"{printable(', '.join(code))}. Look at it first; to import it, give gsolve the flag "
        "--trust, or in Python trust=True."
    )


def distrust(run: str, *configs: Any) -> None:
    """From now on import nothing that these configs of a stranger's run name."""
    _strange.update((text, run) for text in _texts(configs))


def accept(*configs: Any) -> None:
    """These configs are the user's own, or the user trusts them."""
    _own.update(_texts(configs))


def code_named(fields: Mapping[str, Any]) -> list[str]:
    """Modules that a config names, at any depth: in `plugins`, in texts such as module:Name, and by
    import paths in the wrappers; and C files. Its own description names nothing. `fields` may be
    raw: what has another type is left to the validation of the config."""
    blocks = list(_blocks([fields, [_nested(str(key), value) for key, value in fields.items()]]))
    names = {name for block in blocks for name in named_plugins(block)}
    has_description = isinstance(fields.get("description"), str)
    whole = _texts({**fields, "description": None} if has_description else fields)
    texts = {part for text in whole for part in _values_in(text)}
    found_in = (_WITH_COLON.fullmatch(text) for text in texts if not text.startswith(C_ENV))
    names |= {found[1] for found in found_in if found}
    names |= {file for text in texts if text.startswith(C_ENV) and (file := _c_file(text))}
    wrappers = [block.get(key) for block in blocks for key in ("env_wrappers", "wrappers")]
    names |= {found[1] for text in _texts(wrappers) if (found := _WITH_DOTS.fullmatch(text))}
    return sorted(names)


def _values_in(text: str) -> Iterator[str]:
    """A text, and if it lists the values of a search, each of them."""
    yield text
    yield from (part.strip(" []'\"") for part in text.split(","))


def _c_file(text: str) -> str | None:
    """The C file that a text names, without a variant. A text with spaces must end in .c, as the
    engine requires of a file."""
    file = text if Path(text).suffix == ".c" else split_target(text)[0]
    is_name = Path(file).suffix == ".c" or len(text.split()) == 1
    return file if is_name and is_c_file(file) else None


def _nested(key: str, value: Any) -> Any:
    """What an override says as blocks: `env_wrappers.0.id` is a key of a block."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def named_plugins(fields: Mapping[str, Any]) -> list[str]:
    """The names in a raw `plugins` field."""
    value = fields.get("plugins")
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return []
    return [item for item in items if isinstance(item, str)]


def _names(text: str, module: str) -> bool:
    """Whether the name of a module stands in a text as a word."""
    return module in text and bool(re.search(rf"(?<![\w.]){re.escape(module)}(?!\w)", text))


def _texts(value: Any) -> Iterator[str]:
    """All texts inside a value: keys and items at any depth."""
    return (item for item in _inside(value) if isinstance(item, str))


def _blocks(value: Any) -> Iterator[Mapping[str, Any]]:
    """All blocks inside a value."""
    return (item for item in _inside(value) if isinstance(item, Mapping))


def _inside(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        yield item
        if isinstance(item, Mapping):
            waiting += [*item, *item.values()]
        elif isinstance(item, list | tuple | set):
            waiting += item
