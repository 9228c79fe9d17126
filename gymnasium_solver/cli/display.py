"""The live dashboard on a terminal, the thread that keeps it moving, and its keys.

The thread ticks several times a second. The pause between ticks is set by what a tick costs in CPU
time, so that drawing takes about 1 % of a CPU on any machine; but it ticks at least twice a second,
and at once after a key or a signal. Without a terminal there is only the thread. Everything that
writes holds `OUTPUT`.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment

from gymnasium_solver.cli.dashboard import Dashboard
from gymnasium_solver.cli.keys import Keys, Suspension, is_in_background, terminal_keys
from gymnasium_solver.cli.live_state import State

OUTPUT = threading.RLock()
"""Held while something is written, and while a process is forked: a child that is forked in the
middle of a line would inherit locks that nobody releases."""
_is_guarded = False
SHORTEST_S, LONGEST_S = 1 / 8, 0.5  # between ticks
COST = 0.01  # of a CPU
KEYS = {
    "c": "checkpoint: save one after this epoch",
    "e": "evaluate: after this epoch; training continues as without it",
    "p": "pause: before the next step; p again continues",
    "v": "video: record the next evaluation",
    "q": "save and stop: after this epoch; gsolve train --resume continues",
    "h": "help: show or hide this",
}


class Display:
    """`on_tick` is called by the thread before each drawing; `show` puts a message of a level into
    the dashboard."""

    def __init__(
        self,
        console: Console,
        state: State,
        on_tick: Callable[[], None],
        show: Callable[[str, str], None],
    ) -> None:
        self._console, self._state, self._on_tick, self._show = console, state, on_tick, show
        self._live: SteadyLive | None = None
        self._keys: Keys | None = None
        self._awaits_checkpoint = False
        self._suspension = Suspension(self._suspend, self._continue)
        self._suspended_s = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gsolve-display", daemon=True)
        self._wake_out, self._wake_in = socket.socketpair()
        self._hears_signals = False
        self.error: Exception | None = None  # what ended the thread, if something did

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def start(self, *, dashboard: bool, keys: bool) -> None:
        """Start the thread; draw a dashboard and read keys, if the input is a terminal."""
        if dashboard:
            self._show_dashboard()
        if dashboard and keys:
            self._keys = terminal_keys()
            if self._keys is not None:
                self._list_keys()
        _guard_forks()
        for end in (self._wake_out, self._wake_in):
            end.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            # Signals wake the thread at once, even while the main thread is in a long call in C.
            former = signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)
            self._hears_signals = former == -1
            if not self._hears_signals:  # an event loop's; leave it alone
                signal.set_wakeup_fd(former)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, draw the last frame and give the terminal back."""
        self._done.set()
        if self._hears_signals:
            signal.set_wakeup_fd(-1)
        try:  # not under the lock, which the thread may be waiting for
            self._wake_in.send(b"\0")
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._thread.join()
        finally:  # also if Ctrl-C interrupts the waiting
            if self._keys is not None:
                self._keys.close()
            self._wake_in.close()
            self._wake_out.close()
        self._keys = None
        self._suspension.stop()
        with OUTPUT:
            self._state.key_help = []
            live, self._live = self._live, None
            if live is not None:
                live.stop()  # draws once more

    def check(self) -> None:
        """Raise, once, the error that ended the thread."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    # --- the thread

    def _run(self) -> None:
        pause_s = SHORTEST_S
        try:
            while True:
                self._wait(pause_s)
                if self._done.is_set():
                    return
                began_s = time.thread_time()
                self.tick()
                pause_s = pause_after(time.thread_time() - began_s)
        except Exception as error:  # raised by `check`; training goes on
            self.error = error

    def tick(self) -> None:
        with OUTPUT:
            self._on_tick()
            if self._live is None:
                return
            try:  # after `&` or `bg` drawing would disturb what is typed into the shell
                is_away = is_in_background(self._console.file.fileno())
            except (OSError, ValueError):  # not a file
                is_away = False
            if not is_away:
                self._live.refresh()

    def _wait(self, pause_s: float) -> None:
        """Until the time is over, a key is pressed or a signal arrives."""
        key_source = None if self._keys is None else self._keys.source()
        sources = [self._wake_out.fileno(), *([] if key_source is None else [key_source])]
        try:
            ready, _, _ = select.select(sources, [], [], pause_s)
        except (OSError, ValueError):  # the terminal has gone
            if self._keys is not None:
                self._keys.forget()
            return
        if sources[0] in ready:
            for number in filter(None, self._wake_out.recv(64)):
                self._state.note_signal(signal.Signals(number).name)
        if self._keys is not None and key_source in ready and not self._done.is_set():
            for key in self._keys.read():
                self.press(key)

    # --- keys

    def press(self, key: str) -> None:
        """Request what a key means through the training loop's Control."""
        state, control = self._state, self._state.control
        if key == "c":
            control.checkpoint()
            self._awaits_checkpoint = True
        elif key == "e" and state.activity.phase == "evaluating":
            self._show("info", "this policy is being evaluated now")
        elif key == "e":
            control.evaluate()
        elif key == "p":
            (control.resume if state.activity.is_paused else control.pause)()
        elif key == "v" and control.can_record_video:
            control.record_video()
            self._show("info", "a video of the next evaluation will be recorded")
        elif key == "q":
            control.stop("q was pressed")
        elif key in ("h", "?"):
            state.show_help = not state.show_help
        self._list_keys()

    def _list_keys(self) -> None:
        keys = dict(KEYS)
        if self._state.activity.is_paused:
            keys["p"] = "continue: training is paused"
        if not self._state.control.can_record_video:
            del keys["v"]
        self._state.key_help = list(keys.items())

    def took_checkpoint(self) -> bool:
        """Whether the checkpoint that was just saved had been requested by a key."""
        was_awaited, self._awaits_checkpoint = self._awaits_checkpoint, False
        return was_awaited

    # --- the dashboard

    def _show_dashboard(self) -> None:
        self._live = SteadyLive(Dashboard(self._state), console=self._console)
        self._live.start(refresh=True)
        self._suspension.watch()

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
            self._show_dashboard()


def pause_after(cost_s: float) -> float:
    """Seconds between two ticks if one takes `cost_s` of CPU time."""
    return min(max(SHORTEST_S, cost_s / COST), LONGEST_S)


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


class SteadyRender(LiveRender):
    erases = True  # whether old lines are erased first, as by rich

    def position_cursor(self) -> Control:
        if self.erases or self._shape is None:
            return super().position_cursor()
        up = self._shape[1] - 1
        return Control(ControlType.CARRIAGE_RETURN, *([(ControlType.CURSOR_UP, up)] if up else []))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterable[RenderableType | Segment]:
        before = self._shape
        yield from super().__rich_console__(console, options)
        if self.erases or before is None or self._shape is None:
            return
        left_over = before[1] - self._shape[1]
        if left_over > 0:
            erase = (ControlType.ERASE_IN_LINE, 2)
            for _ in range(left_over):
                yield Segment.line()
                yield Control(erase).segment
            yield Control((ControlType.CURSOR_UP, left_over)).segment


class SteadyLive(Live):
    """rich's Live without flicker, for a display whose lines all have the same width.

    rich erases every line before it writes the new ones, which is seen as flicker on a slow
    terminal or connection. Here a refresh overwrites the old lines, and erases only those that are
    left over if the display became shorter. Something printed above it still erases it first."""

    def __init__(self, renderable: RenderableType, **options: Any) -> None:
        super().__init__(renderable, auto_refresh=False, vertical_overflow="crop", **options)
        self._live_render: SteadyRender = SteadyRender(
            self.get_renderable(), vertical_overflow=self.vertical_overflow
        )
        self._width = 0

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        width = self.console.width
        is_refresh = all(isinstance(renderable, Control) for renderable in renderables)
        self._live_render.erases = not is_refresh or width != self._width
        self._width = width
        return super().process_renderables(renderables)
