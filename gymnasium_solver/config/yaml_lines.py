"""Line numbers of the fields in a config file, for messages.

    lines = field_lines(text)
    lines.find("ppo", ("env_wrappers", 0, "scale"))      # 12; None if it is not in the file

A field of a variant may stand in the variant's block, in a block merged by `<<`, in `_base` or at
the top of the file; the first of these counts, as in `ConfigFile.section`.
"""

from collections.abc import Iterator

import yaml

from gymnasium_solver.config.yaml_file import compose_yaml

Path = tuple[str | int, ...]


class FieldLines:
    def __init__(self, root: yaml.Node | None) -> None:
        self._top = root

    def find(self, variant: str | None, path: Path) -> int | None:
        """The line of a field, or of the innermost part of `path` that the file has; None if the
        field is not in it."""
        for block in self._blocks(variant):
            if path and (found := _value(block, path[0])) is not None:
                line, node = found
                return _innermost(node, path[1:], line)
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


def field_lines(text: str) -> FieldLines:
    """The lines of a text that parses."""
    return FieldLines(compose_yaml(text))


def _innermost(node: yaml.Node, path: Path, line: int) -> int:
    for key in path:
        found = _value(node, key)
        if found is None:
            break
        line, node = found
    return line


def _value(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    """Line and value of a key in a mapping (merged blocks included) or of an entry of a list."""
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        if key < len(node.value):
            entry = node.value[key]
            return entry.start_mark.line + 1, entry
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode) and name.value == str(key):
            return name.start_mark.line + 1, value
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode) and name.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for block in merged:
                if (found := _value(block, key)) is not None:
                    return found
    return None
