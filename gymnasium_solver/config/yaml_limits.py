"""Limits on YAML documents, checked on the parser's events before any tree is built.

A few lines of aliases can expand to billions of values, and a deeply nested document overflows the
stack. The events are a flat stream, so checking them is safe whatever the document holds.
"""

from typing import Any

import yaml

MOST_CHARACTERS = 1_000_000
DEEPEST = 50
"""Levels of nesting. Shipped configs have up to 6."""
MOST_VALUES = 100_000
"""Scalars, lists and blocks, with every alias counted as what it stands for."""


def check_limits(text: str, loader_class: Any) -> None:
    """YAMLError if the document is too long, too deep, refers to itself or expands too far."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"the text is longer than {MOST_CHARACTERS:,} characters")
    open_blocks: list[_Block] = [_Block(None)]
    sizes: dict[str, int] = {}  # of what each anchor stands for
    loader = loader_class(text)
    try:
        while (event := loader.get_event()) is not None:
            _follow(event, open_blocks, sizes)
            if isinstance(event, yaml.StreamEndEvent):
                return
    finally:
        loader.dispose()


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


def _error(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
