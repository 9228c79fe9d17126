"""YAML as configs use it: safe, strict about duplicates, with numbers as people write them.

Differences from PyYAML's defaults: 1e-3 and 1e5 are numbers; only true and false are booleans, so
`off` is text; dates and 1:30 are text; a key given twice is an error that names both lines. Size,
depth and the number of values after expanding aliases are limited.
`${name}` is replaced by its value in `fill` anywhere in the file, before the text is parsed.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import yaml

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.paths import open_regular

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
# Written for a placeholder without a value, so that the rest of the file still parses.
_UNFILLED = re.compile(r"__unfilled<([A-Za-z0-9_.-]+)>__")

_FIELD = re.compile(r"^(?=[A-Za-z_])", re.MULTILINE)  # where a field begins in a document of fields
_SHARED = re.compile(r"(?:^|[\s\[{,])(?:[&*]\S|<<\s*:)|^(?:---|\.\.\.|%)", re.MULTILINE)
"""What may make a field depend on others: an anchor, an alias, a merge, a second document."""
_SCALARS = (str, int, float, bool, type(None))

_INT = r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+"
_FLOAT = (
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# Each kind of plain scalar: its pattern, and the characters it may begin with.
_RESOLVERS = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("tag:yaml.org,2002:float", _FLOAT, [*"-+0123456789."]),
    ("tag:yaml.org,2002:int", _INT, [*"-+0123456789"]),
    ("tag:yaml.org,2002:merge", r"<<", ["<"]),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", [*"~nN", ""]),
)

# libyaml, if available: reading and writing configs then takes a fifth of the time.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


_TAG = "tag:yaml.org,2002:"


class _Loader(_SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}
    # Only the types that JSON has, too: no dates, sets or binary data.
    yaml_constructors = {
        tag: constructor
        for tag, constructor in _SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in ("null", "float", "str", "seq", "map")
    }

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Called on each mapping before `<<` adds keys, which may repeat those of the mapping.
        if not getattr(node, "checked", False):
            _refuse_duplicates(node)
            node.checked = True  # type: ignore[attr-defined]
        super().flatten_mapping(node)


class _Quotes:
    """Quotes every text that our loader or a standard one would read as something else."""

    yaml_implicit_resolvers = {
        first: list(pairs) for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Dumper(_Quotes, yaml.SafeDumper):
    pass


class _FastDumper(_Quotes, _SafeDumper):
    """Gives the same text, but with emoji escaped."""


for _tag, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper, _FastDumper):
        _class.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    if not re.fullmatch(_INT, text):
        raise _error(f"{_cut(text)!r} is not a whole number", node)
    digits = text.replace("_", "")
    value = int(digits, 0 if digits[:2] in ("0x", "0o") else 10) if len(digits) < 100 else 2**63
    if abs(value) >= 2**63:
        raise _error(f"{_cut(text)} is too large: whole numbers must be below 2^63", node)
    return value


def _construct_bool(loader: Any, node: yaml.ScalarNode) -> bool:
    text = loader.construct_scalar(node)
    if text.lower() not in ("true", "false"):
        raise _error(f"{_cut(text)!r} is neither true nor false", node)
    return bool(text.lower() == "true")


def _error(problem: str, at: yaml.Node | yaml.Event) -> yaml.constructor.ConstructorError:
    mark: Any = at.start_mark
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


_Loader.add_constructor(f"{_TAG}int", _construct_int)
_Loader.add_constructor(f"{_TAG}bool", _construct_bool)


def _refuse_duplicates(node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in lines:
            first = f"first in line {lines[key.value]}"
            problem = f"the key {key.value!r} is given twice, {first}"
            raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        lines[key.value] = key.start_mark.line + 1


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML document; ConfigError names the file, the line and the problem."""
    try:
        check_limits(text)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None


def parse_fields(text: str, where: str) -> Any:
    """The same as `parse_yaml`, faster for many files that differ in a few fields, such as the
    configs of runs: each field is parsed once."""
    parts = _FIELD.split(text)
    fields: dict[Any, Any] = {}
    try:
        if parts[0] or len(parts) == 1 or _SHARED.search(text):
            return parse_yaml(text, where)
        for part in parts[1:]:
            ((name, value),) = _field(part).items()
            if name in fields:
                return parse_yaml(text, where)  # says which lines
            fields[name] = value if isinstance(value, _SCALARS) else deepcopy(value)
    except (ConfigError, ValueError, AttributeError):  # not one field, or with the wrong line
        return parse_yaml(text, where)
    return fields


@lru_cache(maxsize=20_000)
def _field(text: str) -> Any:
    return parse_yaml(text, "a field")


def parse_value(text: str) -> Any:
    """The value of a command-line token: the same as after `key: ` in a config.

    Lists, blocks and quotes are parsed. Anything else is a number, true, false, null or text, so
    that tokens like @last or `a: b`, which YAML requires quotes for, need none here."""
    stripped = text.strip()
    if stripped[:1] in ("[", "{", '"', "'"):
        return parse_yaml(stripped, f"the value {_cut(text)}")
    if not stripped:
        return text
    loader = _Loader("")
    try:
        tag = loader.resolve(yaml.ScalarNode, stripped, (True, False))
        return loader.construct_object(yaml.ScalarNode(tag, stripped))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"the value {error.problem}") from None
    finally:
        loader.dispose()


def dump_yaml(data: Mapping[str, Any]) -> str:
    """YAML that parses back equal: fields in their order, short lists and blocks on one line."""

    def written(dumper: Any) -> str:
        text: str = yaml.dump(
            dict(data), Dumper=dumper, sort_keys=False, default_flow_style=None,
            allow_unicode=True, width=100,
        )  # fmt: skip
        return text

    text = written(_FastDumper)
    return written(_Dumper) if "\\U" in text else text


def value_text(value: Any) -> str:
    """A value as one line of YAML, as it would be typed: `{start: 0.2, end: 0.1}`, 0.0001, null."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=True, allow_unicode=True,
        width=10**6,
    )  # fmt: skip
    return text.removesuffix("...\n").strip()


def read_file(path: Path, fill: Mapping[str, str] | None = None) -> tuple[Any, set[str]]:
    """The content of a YAML or JSON file, and the names of all placeholders in it."""
    text, names = read_text(path, fill)
    return parse_yaml(text, str(path)), names


def read_text(path: Path, fill: Mapping[str, str] | None = None) -> tuple[str, set[str]]:
    """The text of a file with its placeholders filled, and their names."""
    try:
        is_of_a_run = (path.parent / "meta.json").exists()  # links are for one's own files
        with TextIOWrapper(open_regular(path, follow=not is_of_a_run), encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text ({error})") from None
    if path.suffix == ".json":
        # JSON is YAML except for tabs. This keeps line numbers and one set of rules for both.
        text = re.sub(r"^\t+", lambda tabs: "  " * len(tabs[0]), text, flags=re.MULTILINE)
    values = {name: str(value) for name, value in (fill or {}).items()}
    names = set(_PLACEHOLDER.findall(text))
    text = _PLACEHOLDER.sub(lambda m: values.get(m[1], f"__unfilled<{m[1]}>__"), text)
    return text, names


def unfilled(data: Any) -> Iterator[str]:
    """Names of the placeholders left in a value that was read without filling them."""
    if isinstance(data, str):
        yield from _UNFILLED.findall(data)
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from unfilled(key)
            yield from unfilled(value)
    elif isinstance(data, list):
        for item in data:
            yield from unfilled(item)


# ------------------------------------------------------------------------------------------
# Limits on YAML documents, checked on the parser's events before any tree is built.
#
# A few lines of aliases can expand to billions of values, and a deeply nested document overflows
# the stack. The events are a flat stream, so checking them is safe whatever the document holds.


MOST_CHARACTERS = 1_000_000
DEEPEST = 50  # levels of nesting. Shipped configs have up to 6
MOST_VALUES = 100_000  # scalars, lists and blocks, with every alias counted as what it stands for


def check_limits(text: str) -> None:
    """YAMLError if the document is too long, too deep, refers to itself or expands too far."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"the text is longer than {MOST_CHARACTERS:,} characters")
    open_blocks: list[_Block] = [_Block(None)]
    sizes: dict[str, int] = {}  # of what each anchor stands for
    for event in yaml.parse(text, Loader=_Loader):
        _follow(event, open_blocks, sizes)


class _Block:
    """A list or block that is being read, and the values in it so far."""

    def __init__(self, anchor: str | None):
        self.anchor, self.size = anchor, 1


def _follow(event: yaml.Event, open_blocks: list[_Block], sizes: dict[str, int]) -> None:
    if isinstance(event, yaml.CollectionStartEvent):
        if len(open_blocks) > DEEPEST:
            raise _error(f"nested more than {DEEPEST} levels deep", event)
        open_blocks.append(_Block(event.anchor))
        return
    if isinstance(event, yaml.CollectionEndEvent):
        block = open_blocks.pop()
        size, anchor = block.size, block.anchor
    elif isinstance(event, yaml.ScalarEvent):
        size, anchor = 1, event.anchor
    elif isinstance(event, yaml.AliasEvent):
        if any(block.anchor == event.anchor for block in open_blocks):
            raise _error(f"*{event.anchor} refers to the block that it is in", event)
        # An unknown name fails later, when the value is built.
        size, anchor = sizes.get(str(event.anchor), 1), None
    else:
        return
    if anchor is not None:
        sizes[anchor] = size
    open_blocks[-1].size += size
    if open_blocks[-1].size > MOST_VALUES:
        raise _error(f"more than {MOST_VALUES:,} values, with aliases expanded", event)


# ------------------------------------------------------------------------------------------
# Line numbers of the fields in a config file, for messages.
#
#     lines = FieldLines(text)
#     lines.find("ppo", ("env_wrappers", 0, "scale"))      # 12; None if it is not in the file
#
# A field of a variant may stand in the variant's block, in a block merged by `<<`, in `_base` or at
# the top of the file; the first of these counts, as in `ConfigFile.section`.


FieldPath = tuple[str | int, ...]


class FieldLines:
    """Of the text of a file that parses."""

    def __init__(self, text: str) -> None:
        self._top: yaml.Node | None = yaml.compose(text, Loader=_Loader)

    def find(self, variant: str | None, path: FieldPath) -> int | None:
        """The line of a field, or of the innermost part of `path` that the file has; None if the
        field is not in it."""
        for block in self._blocks(variant):
            if path and (found := _value(block, path[0])) is not None:
                for key in path[1:]:
                    if (inner := _value(found[1], key)) is None:
                        break
                    found = inner
                return found[0]
        return None

    def variant(self, name: str) -> int | None:
        """The line in which a variant begins."""
        found = _value(self._top, name)
        return None if found is None else found[0]

    def _blocks(self, variant: str | None) -> Iterator[yaml.Node | None]:
        if variant is not None:
            own = _value(self._top, variant)
            yield own[1] if own else None
        yield self._top
        base = _value(self._top, "_base")
        yield base[1] if base else None


def _value(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    """Line and value of a key in a mapping (merged blocks included) or of an entry of a list."""
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        if key < len(node.value):
            entry = node.value[key]
            return entry.start_mark.line + 1, entry
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    named = {
        key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)
    }
    if str(key) in named:
        name, value = named[str(key)]
        return name.start_mark.line + 1, value
    _, merged = named.get("<<", (None, None))
    blocks = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
    return next((found for block in blocks if (found := _value(block, key)) is not None), None)
