"""A thread that keeps a display alive: it ticks several times a second and reads keys in between.

The pause between ticks is set by what a tick costs in CPU time, so that drawing takes about 1 % of
a CPU on any machine; but it ticks at least twice a second, and at once after a key or a signal.
"""

import select
import signal
import socket
import threading
import time
from collections.abc import Callable

from gymnasium_solver.cli.keys import Keys

SHORTEST_S, LONGEST_S = 1 / 8, 0.5
COST = 0.01


def pause_after(cost_s: float) -> float:
    """Seconds between two ticks if one takes `cost_s` of CPU time."""
    return min(max(SHORTEST_S, cost_s / COST), LONGEST_S)


class Ticker:
    def __init__(
        self,
        tick: Callable[[], None],
        keys: Keys | None = None,
        press: Callable[[str], None] | None = None,
        on_signal: Callable[[str], None] | None = None,
    ) -> None:
        """`press` is called with each key, `on_signal` with the name of each signal that arrives,
        before a tick follows."""
        self._tick, self._keys, self._press, self._on_signal = tick, keys, press, on_signal
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gsolve-display", daemon=True)
        self._wake_out, self._wake_in = socket.socketpair()
        self._hears_signals = False
        self.error: Exception | None = None
        """What ended the thread, if something did."""

    def start(self) -> None:
        for end in (self._wake_out, self._wake_in):
            end.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            # Signals wake this thread at once, even while the main thread is in a long call in C.
            former = signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)
            self._hears_signals = former == -1
            if not self._hears_signals:  # an event loop's; leave it alone
                signal.set_wakeup_fd(former)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and give the terminal back."""
        self._done.set()
        if self._hears_signals:
            signal.set_wakeup_fd(-1)
        try:
            self._wake_in.send(b"\0")
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._thread.join()
        finally:  # also if Ctrl-C interrupts the waiting
            if self._keys is not None:
                self._keys.close()
            self._wake_in.close()
            self._wake_out.close()

    def _run(self) -> None:
        pause_s = SHORTEST_S
        try:
            while not self._done.is_set():
                self._wait(pause_s)
                if self._done.is_set():
                    return
                began_s = time.thread_time()
                self._tick()
                pause_s = pause_after(time.thread_time() - began_s)
        except Exception as error:  # reported by the owner; training goes on
            self.error = error

    def _wait(self, pause_s: float) -> None:
        """Until the time is over, a key is pressed or a signal arrives."""
        sources: list[int] = [self._wake_out.fileno()]
        key_source = None if self._keys is None else self._keys.source()
        if key_source is not None:
            sources.append(key_source)
        try:
            ready, _, _ = select.select(sources, [], [], pause_s)
        except (OSError, ValueError):  # the terminal has gone
            if self._keys is not None:
                self._keys.forget()
            return
        if sources[0] in ready:
            self._tell_signals(self._wake_out.recv(64))
        if self._keys is not None and key_source in ready and not self._done.is_set():
            for key in self._keys.read():
                if self._press is not None:
                    self._press(key)

    def _tell_signals(self, numbers: bytes) -> None:
        for number in filter(None, numbers):
            if self._on_signal is not None:
                self._on_signal(signal.Signals(number).name)
