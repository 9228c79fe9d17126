"""Single keys from the terminal while training runs, without Enter; the terminal is given back.

    keys = terminal_keys()
    select.select([keys.source()], [], [])
    keys.read()          # "c"
    keys.close()

Ctrl-C and Ctrl-Z stay signals. Only a process in the foreground touches the terminal: another one
would be stopped by the kernel. After Ctrl-Z and `fg` the terminal is taken again.
"""

import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

SEQUENCE = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z~]|O[A-Za-z]|.)?")
"""What an arrow or a function key sends: Escape and more, the last of which may be a letter."""

ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
NAMES = {" ": "space", "\r": "return", "\n": "return"}

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]


def terminal_keys() -> "Keys | None":
    """The keys of this process's terminal; None if its input is not a terminal."""
    try:
        is_terminal = termios is not None and sys.stdin is not None and sys.stdin.isatty()
        return Keys(sys.stdin.fileno()) if is_terminal else None
    except (OSError, ValueError):  # closed, or replaced by something without a descriptor
        return None


def is_in_background(fd: int) -> bool:
    """Whether another process has the terminal, so that this one should leave it alone."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except (OSError, AttributeError):  # no terminal, not that of this session, or Windows
        return False


def key_names(typed: bytes) -> list[str]:
    """The keys of what a terminal sent; function keys are left out."""
    names = []
    while typed:
        if match := SEQUENCE.match(typed):
            arrow = ARROWS.get(match[0][-1:]) if len(match[0]) == 3 else None
            names += [arrow] if arrow else []
            typed = typed[match.end() :]
            continue
        key, typed = typed[:1].decode(errors="ignore").lower(), typed[1:]
        names += [NAMES.get(key, key)] if key else []
    return names


class Keys:
    """Used by one thread; `suspend`, `resume` and `close` may be called by another one."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._former: list[Any] | None = None
        """Settings of the terminal to restore, while it is taken."""
        self._is_suspended = False
        self._lock = threading.Lock()

    def source(self) -> int | None:
        """The descriptor to wait for; None while the terminal is not ours."""
        return self._fd if self._take() else None

    def read(self) -> str:
        """The letters typed until now; call it when `source` can be read."""
        return SEQUENCE.sub(b"", self._typed()).decode(errors="ignore").lower()

    def names(self, timeout_s: float) -> list[str]:
        """Wait for keys; all of them by name: letters, left, right, up, down, space, return."""
        source = self.source()
        if source is None:
            time.sleep(timeout_s)
            return []
        try:
            is_ready = bool(select.select([source], [], [], timeout_s)[0])
        except (OSError, ValueError):  # the terminal has gone
            self.forget()
            return []
        return key_names(self._typed()) if is_ready else []

    def _typed(self) -> bytes:
        if self._fd is None or not self._is_foreground():
            return b""
        try:
            typed = os.read(self._fd, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal has gone
            self.forget()
        return typed

    def forget(self) -> None:
        """Read no more keys: the terminal has gone."""
        self._fd = None

    def close(self) -> None:
        """Give the terminal back, for good."""
        self.suspend()
        self.forget()

    def resume(self) -> None:
        """Take the terminal again."""
        self._is_suspended = False

    def suspend(self) -> None:
        """Restore the terminal's settings and leave it alone until `resume`."""
        with self._lock:
            self._is_suspended = True
            if self._former is None or self._fd is None or not self._is_foreground():
                return
            with suppress(termios.error):  # the terminal has gone
                termios.tcsetattr(self._fd, termios.TCSANOW, self._former)
            self._former = None

    def _is_foreground(self) -> bool:
        try:
            return self._fd is not None and os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _take(self) -> bool:
        """Switch off echo and waiting for Enter; False if the terminal is not ours now."""
        with self._lock:
            if self._fd is None or self._is_suspended or not self._is_foreground():
                return False
            try:
                mode = termios.tcgetattr(self._fd)
                if mode[3] & termios.ICANON:
                    self._former = termios.tcgetattr(self._fd)
                    mode[3] &= ~(termios.ICANON | termios.ECHO)
                    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
                    termios.tcsetattr(self._fd, termios.TCSANOW, mode)
            except termios.error:
                self._fd = None
            return self._fd is not None


class Suspension:
    """Calls `before` when Ctrl-Z is about to stop the process, and `after` when it continues."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before, self._after = before, after
        self._former: object = None

    def watch(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or not hasattr(signal, "SIGTSTP"):
            return
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:  # else the shell has no job control
            self._former = signal.signal(signal.SIGTSTP, self._suspend)

    def stop(self) -> None:
        if self._former is not None:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            self._former = None

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._before()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # stops here, until SIGCONT
        time.sleep(0)  # the signal may be delivered at the next opportunity
        signal.signal(signal.SIGTSTP, self._suspend)
        self._after()
