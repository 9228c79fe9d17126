"""Ctrl-C and SIGTERM request a stop after the current epoch; a second signal stops immediately."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PREEMPTED = 75
"""Exit code of a run that SIGTERM ended and that can be resumed (EX_TEMPFAIL: try again)."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived when there is nothing to save."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


class StopRequest:
    """`name` is the received signal, or None."""

    name: str | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            _raise(number, frame)
        self.name = signal.Signals(number).name


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handle signals while the loop runs, then restore the previous handlers."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread can set handlers
        return
    former = {s: signal.signal(s, request.on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into Terminated outside the loop, during setup and the final test."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
