"""YAML as configs use it: safe, strict about duplicates, with numbers as people write them.

Differences from PyYAML's defaults: 1e-3 and 1e5 are numbers; only true and false are booleans, so
`off` is text; dates and 1:30 are text; a key given twice is an error that names both lines. Size,
depth and the number of values after expanding aliases are limited (config/yaml_limits.py).
`${name}` is replaced by its value in `fill` anywhere in the file, before the text is parsed.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gymnasium_solver.config.yaml_limits import MOST_CHARACTERS, check_limits
from gymnasium_solver.errors import ConfigError

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
# Written for a placeholder without a value, so that the rest of the file still parses.
_UNFILLED = re.compile(r"__unfilled<([A-Za-z0-9_.-]+)>__")

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

# libyaml's parser, if available: listing all configs then takes a fifth of the time.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


class _Dumper(yaml.SafeDumper):
    """Quotes every text that our loader or a standard one would read as something else."""

    yaml_implicit_resolvers = {
        first: list(pairs) for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
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


def _error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


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
        check_limits(text, _Loader)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None


def parse_value(text: str) -> Any:
    """The value of a command-line token: the same as after `key: ` in a config.

    Lists, blocks and quotes are parsed. Anything else is a number, true, false, null or text, so
    that tokens like @last or `a: b`, which YAML requires quotes for, need none here.
    """
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
    return yaml.dump(
        dict(data), Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True,
        width=100,
    )  # fmt: skip


def value_text(value: Any) -> str:
    """A value as one line of YAML, as it would be typed: `{start: 0.2, end: 0.1}`, 0.0001, null."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=True, allow_unicode=True,
        width=10**6,
    )  # fmt: skip
    return text.removesuffix("...\n").strip()


def compose_yaml(text: str) -> yaml.Node | None:
    """The nodes of a document that `parse_yaml` accepts, with their places."""
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node


def read_file(path: Path, fill: Mapping[str, str] | None = None) -> tuple[Any, set[str]]:
    """The content of a YAML or JSON file, and the names of all placeholders in it."""
    text, names = read_text(path, fill)
    return parse_yaml(text, str(path)), names


def read_text(path: Path, fill: Mapping[str, str] | None = None) -> tuple[str, set[str]]:
    """The text of a file with its placeholders filled, and their names."""
    try:
        with path.open(encoding="utf-8") as file:
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
