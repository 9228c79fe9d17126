"""Ctrl-C and SIGTERM request a stop after the current epoch; a second signal stops immediately."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gymnasium_solver.lanes import current_lane
from gymnasium_solver.training.activity import Activity

PREEMPTED = 75
"""Exit code of a run that SIGTERM ended and that can be resumed (EX_TEMPFAIL: try again)."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived when there is nothing to save."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def stop_on_signals(activity: Activity) -> Iterator[None]:
    """Note signals in `activity.stop_signal` while the loop runs, then restore the handlers."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if activity.stop_signal is not None:
            _raise(number, frame)
        activity.stop_signal = signal.Signals(number).name

    def note(name: str) -> bool:
        is_first, activity.stop_signal = activity.stop_signal is None, name
        return is_first

    if (lane := current_lane()) is not None:  # one of several trainings, which are told together
        lane.on_signal = note
        try:
            yield
        finally:
            lane.on_signal = None
        return
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
        return
    former = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    activity.takes_signals = True
    try:
        yield
    finally:
        activity.takes_signals = False
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into Terminated outside the loop, during setup and the final test."""
    if current_lane() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
