"""A thread that keeps a display alive: it ticks several times a second and reads keys in between.

The pause between ticks is set by what a tick costs in CPU time, so that drawing takes about 1 % of
a CPU on any machine; but it ticks at least once a second.
"""

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
    ) -> None:
        """`press` is called with each key, followed by a tick."""
        self._tick, self._keys, self._press = tick, keys, press
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gsolve-display", daemon=True)
        self.error: Exception | None = None
        """What ended the thread, if something did."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and give the terminal back."""
        self._done.set()
        if self._keys is not None:
            self._keys.wake()
        try:
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._thread.join()
        finally:  # also if Ctrl-C interrupts the waiting
            if self._keys is not None:
                self._keys.close()

    def _run(self) -> None:
        pause_s = SHORTEST_S
        try:
            while not self._done.is_set():
                typed = self._wait(pause_s)
                if self._done.is_set():
                    return
                for key in typed:
                    if self._press is not None:
                        self._press(key)
                began_s = time.thread_time()
                self._tick()
                pause_s = pause_after(time.thread_time() - began_s)
        except Exception as error:  # reported by the owner; training goes on
            self.error = error

    def _wait(self, pause_s: float) -> str:
        if self._keys is not None:
            return self._keys.wait(pause_s)
        self._done.wait(pause_s)
        return ""
