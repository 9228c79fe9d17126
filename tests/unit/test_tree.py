"""Trees of tensors: flattened in a fixed order and put together again, every kind of node."""

from typing import Any, NamedTuple

import pytest

from gymnasium_solver.tree import flatten, leaves_of, map_tree, structure_of, unflatten


class Pair(NamedTuple):
    left: Any
    right: Any = None


TREES: list[Any] = [
    3,
    None,
    [],
    {},
    (),
    [1, 2],
    (1, (2, [3, {"a": 4}])),
    {"b": 1, "a": {"d": 2, "c": None}},
    Pair(1),
    Pair({"x": 1, "y": Pair(2, 3)}, [None, 4]),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_there_and_back(tree: Any) -> None:
    leaves, structure = flatten(tree)
    again = unflatten(structure, leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert leaves == leaves_of(tree)
    doubled = unflatten(structure_of(tree), [2 * leaf for leaf in leaves])
    assert doubled == map_tree(lambda leaf: 2 * leaf, tree)


def test_leaves_come_in_the_order_of_the_tree() -> None:
    tree = Pair({"z": 1, "a": (2, 3)}, [None, 4])
    assert leaves_of(tree) == [1, 2, 3, 4]
    assert list(unflatten(structure_of(tree), "abcd").left) == ["z", "a"]
    assert unflatten(structure_of(tree), "abcd") == Pair({"z": "a", "a": ("b", "c")}, [None, "d"])


def test_a_named_tuple_stays_one() -> None:
    assert map_tree(str, Pair(1, Pair(2, 3))).right.left == "2"


def test_two_trees_of_one_form_have_equal_structures() -> None:
    assert structure_of(Pair(1, {"a": 2})) == structure_of(Pair(5, {"a": 6}))
    assert structure_of(Pair(1, {"a": 2})) != structure_of(Pair(1, {"b": 2}))
    assert structure_of(Pair(1)) != structure_of(Pair(1, 2))
