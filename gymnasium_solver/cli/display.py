"""The live dashboard on a terminal, the thread that keeps it moving, and its keys.

Without a terminal there is only the thread. Everything that writes holds `OUTPUT`.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.file_proxy import FileProxy

from gymnasium_solver.cli.dashboard import Dashboard
from gymnasium_solver.cli.key_actions import KeyActions, Show
from gymnasium_solver.cli.keys import Keys, Suspension, is_in_background, terminal_keys
from gymnasium_solver.cli.live_state import State
from gymnasium_solver.cli.steady_live import SteadyLive
from gymnasium_solver.cli.ticker import Ticker

OUTPUT = threading.RLock()
"""Held while something is written, and while a process is forked: a child that is forked in the
middle of a line would inherit locks that nobody releases."""
_is_guarded = False


class Display:
    def __init__(self, console: Console, state: State, on_tick: Callable[[], None]) -> None:
        """`on_tick` is called by the thread before each drawing."""
        self._console, self._state, self._on_tick = console, state, on_tick
        self._live: SteadyLive | None = None
        self._keys: Keys | None = None
        self._key_actions: KeyActions | None = None
        self._suspension = Suspension(self._suspend, self._continue)
        self._ticker: Ticker | None = None
        self._suspended_s = 0.0

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def show_dashboard(self) -> None:
        self._live = SteadyLive(Dashboard(self._state), console=self._console)
        self._live.start(refresh=True)
        self._suspension.watch()

    def read_keys(self, show: Show) -> None:
        """Read keys, if the input is a terminal; `show` puts a message into the dashboard."""
        self._keys = terminal_keys()
        if self._keys is not None:
            self._key_actions = KeyActions(self._state, show)

    def start_thread(self) -> None:
        _guard_forks()
        press = None if self._key_actions is None else self._key_actions.press
        self._ticker = Ticker(self.tick, self._keys, press, self._state.note_signal)
        self._ticker.start()

    def tick(self) -> None:
        with OUTPUT:
            self._on_tick()
            if self._live is not None and not self._is_in_background():
                self._live.refresh()

    def _is_in_background(self) -> bool:
        """After `&` or `bg`: drawing would disturb what is typed into the shell."""
        try:
            return is_in_background(self._console.file.fileno())
        except (OSError, ValueError):  # not a file
            return False

    def check(self) -> None:
        """Raise, once, the error that ended the thread."""
        if self._ticker is not None and self._ticker.error is not None:
            error, self._ticker.error = self._ticker.error, None
            raise error

    def took_checkpoint(self) -> bool:
        """Whether the checkpoint that was just saved had been requested by a key."""
        return self._key_actions is not None and self._key_actions.took_checkpoint()

    def stop(self) -> None:
        """Stop the thread, draw the last frame and give the terminal back."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.stop()  # not under the lock, which the thread may be waiting for
        self._keys = self._key_actions = None
        self._suspension.stop()
        with OUTPUT:
            self._state.key_help = []
            live, self._live = self._live, None
            if live is not None:
                live.stop()  # draws once more

    def _suspend(self) -> None:
        """Ctrl-Z: leave the terminal as it was."""
        self._suspended_s = time.perf_counter()
        with OUTPUT:
            if self._live is not None:
                self._live.stop()
                self._live = None
            if self._keys is not None:
                self._keys.suspend()

    def _continue(self) -> None:
        self._state.activity.exclude(time.perf_counter() - self._suspended_s)
        with OUTPUT:
            if self._keys is not None:
                self._keys.resume()
            self.show_dashboard()


def _guard_forks() -> None:
    """Environments may be forked into processes of their own while the display's thread writes."""
    global _is_guarded
    if not _is_guarded and hasattr(os, "register_at_fork"):
        _is_guarded = True
        os.register_at_fork(
            before=OUTPUT.acquire, after_in_parent=OUTPUT.release, after_in_child=_in_child
        )


def _in_child() -> None:
    """A child prints directly: it must not redraw the parent's dashboard."""
    OUTPUT.release()
    if isinstance(sys.stdout, FileProxy):
        sys.stdout = sys.stdout.rich_proxied_file
    if isinstance(sys.stderr, FileProxy):
        sys.stderr = sys.stderr.rich_proxied_file
