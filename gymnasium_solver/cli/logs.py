"""`--log-level`: which messages are shown. Also messages of Python's logging, of any package.

Messages of this package are shown from the chosen level on; those of other packages from warning
on, with debug from info on.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.suggest import did_you_mean

LEVELS = ("debug", "info", "warning", "error")
PACKAGE = "gymnasium_solver"


def rank(level: str) -> int:
    """Levels in the order of importance."""
    return LEVELS.index(level) if level in LEVELS else LEVELS.index("info")


def check_level(level: str) -> str:
    if level not in LEVELS:
        hint = did_you_mean(level, LEVELS)
        raise GsolveError(f"--log-level {level}: expected {', '.join(LEVELS)}. {hint}".rstrip())
    return level


class LogCapture(logging.Handler):
    """Passes log records to a function of (level, text) between `start` and `stop`."""

    def __init__(self, tell: Callable[[str, str], None], level: str) -> None:
        super().__init__(logging.DEBUG)
        self._tell = tell
        self._own = level.upper()
        self._others = logging.INFO if level == "debug" else logging.WARNING
        self._former = logging.NOTSET

    def start(self) -> None:
        package = logging.getLogger(PACKAGE)
        self._former = package.level
        package.setLevel(self._own)
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        logging.getLogger().removeHandler(self)
        logging.getLogger(PACKAGE).setLevel(self._former)

    def emit(self, record: logging.LogRecord) -> None:
        is_own = record.name.partition(".")[0] == PACKAGE
        if not is_own and record.levelno < self._others:
            return
        level = "error" if record.levelno > logging.WARNING else record.levelname.lower()
        try:
            text = record.getMessage()
            self._tell(level, text if is_own else f"{record.name}: {text}")
        except Exception:
            self.handleError(record)


@contextmanager
def logged_to_stderr(level: str) -> Iterator[None]:
    """Print messages as `level: text` while the block runs."""

    def print_message(message_level: str, text: str) -> None:
        if rank(message_level) >= rank(level):
            print(f"{message_level}: {text}", file=sys.stderr)

    capture = LogCapture(print_message, level)
    capture.start()
    try:
        yield
    finally:
        capture.stop()
