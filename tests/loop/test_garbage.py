"""The garbage collector leaves out what existed before a run, until the run ends."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gymnasium_solver.training.threads import old_objects_left_out


class Node:
    other: Any


def cycle() -> weakref.ref[Node]:
    """Garbage that only the collector frees."""
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture
def nothing_left_out() -> Iterator[None]:
    """As in a process of its own: the tests leave out what they share."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if was_frozen:
        gc.freeze()


def test_a_program_that_does_it_itself_is_left_alone(nothing_left_out: None) -> None:
    gc.freeze()
    n = gc.get_freeze_count()
    with old_objects_left_out():
        assert gc.get_freeze_count() == n
    assert gc.get_freeze_count() == n


def test_objects_are_left_out_until_the_run_ends(nothing_left_out: None) -> None:
    with old_objects_left_out():
        n = gc.get_freeze_count()
        assert n > 1000
        with old_objects_left_out():  # another thread, or a run inside a run
            assert gc.get_freeze_count() == n
        assert gc.get_freeze_count() == n
    assert gc.get_freeze_count() == 0
    with pytest.raises(ValueError, match="stop"), old_objects_left_out():
        raise ValueError("stop")
    assert gc.get_freeze_count() == 0


def test_garbage_of_a_run_and_of_the_one_before_it_is_freed(nothing_left_out: None) -> None:
    with old_objects_left_out():
        pass
    gc.disable()
    try:
        earlier = cycle()
        with old_objects_left_out():
            assert earlier() is None
            own = cycle()
            gc.collect()
            assert own() is None
            last = cycle()
        gc.collect()
        assert last() is None
    finally:
        gc.enable()
