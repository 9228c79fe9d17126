"""Processes that environments start, and Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore SIGINT in processes that are started inside. Ctrl-C reaches every process of a
    terminal, but environments must live until the run has saved itself. Signal handlers that
    libraries set inside are restored."""
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
