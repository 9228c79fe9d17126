"""Trees of tensors: a loss takes nested data; recording and CUDA graphs need flat lists.

    leaves, structure = flatten(batch)          # batch: named tuples, dicts, tuples, None
    batch = unflatten(structure, leaves)

A leaf is anything that is not a dict, a tuple, a list or None.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Structure = Any  # opaque; pass it to `unflatten`

_LEAF = object()


def leaves_of(tree: Any) -> list[Any]:
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves_of(value)]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in leaves_of(value)]
    return [tree]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    return leaves_of(tree), structure_of(tree)


def structure_of(tree: Any) -> Structure:
    return map_tree(lambda leaf: _LEAF, tree)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    given: Iterator[Any] = iter(leaves)
    return map_tree(lambda leaf: next(given), structure)


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each leaf, in the order of `leaves_of`, and return the same tree."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: map_tree(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        values = [map_tree(function, value) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return function(tree)
