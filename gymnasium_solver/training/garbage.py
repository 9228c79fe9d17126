"""Python's garbage collector while a run trains.

A full collection visits every object of the process. Most of them belong to torch and other
imported modules and stay: one visit takes 100 ms, about 5 % of the time of a short training. So
what exists when a run begins is left out until the run ends.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_n_running = 0
_has_ended = False  # a run of this process


@contextmanager
def old_objects_left_out() -> Iterator[None]:
    global _n_running, _has_ended
    is_own = _n_running == 0 and not gc.get_freeze_count()  # or the program has done it itself
    if is_own:
        if _has_ended:
            gc.collect()  # what remains of an earlier run, a replay buffer say, must not stay
        gc.freeze()
    _n_running += 1
    try:
        yield
    finally:
        _n_running -= 1
        _has_ended = True
        if is_own:
            gc.unfreeze()
