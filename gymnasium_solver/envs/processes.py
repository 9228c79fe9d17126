"""Processes that environments start, and Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal: those of environments must outlive it until the
    run has saved itself. Processes started in here inherit that SIGINT is ignored; handlers that
    are set in here, by libraries, are undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in former.items():
            if handler is not None:  # None: set by no Python code
                signal.signal(number, handler)
