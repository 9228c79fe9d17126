"""gsolve commands in processes of their own: the servers import neither torch nor plugins.

output_of("show", "CartPole-v1:ppo", "--json")         # the JSON that it prints
Commands().answer(argv, wait_s=50.0)                   # one that may take longer than that
"""

import atexit
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.errors import GsolveError

TIMEOUT_S = 90.0
MOST_COMMANDS, LONGEST_COMMAND_S = 4, 900.0


class CommandError(GsolveError):
    """A gsolve command failed; the message is what it printed."""


def output_of(*words: str, timeout_s: float = TIMEOUT_S) -> Any:
    """The JSON that a gsolve command prints; CommandError with its message if it fails."""
    command = Command(local.gsolve(*words))
    if not command.wait(timeout_s):
        command.process.kill()
        raise CommandError(f"{words[0]} took longer than {timeout_s:g} s and was stopped")
    return json.loads("\n".join(command.lines()))


def without_verb(message: str) -> str:
    """What gsolve printed about an error, without `gsolve VERB: `."""
    return re.sub(r"^gsolve [\w-]+: ", "", message)


class Command:
    """A process that prints into files, which may be read while it runs."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gsolve-")
        self._output, self._errors = (Path(self._folder.name) / name for name in ("out", "err"))
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        self._timer = threading.Timer(LONGEST_COMMAND_S, self.process.kill)
        self._timer.daemon = True
        self._timer.start()

    def wait(self, seconds: float) -> bool:
        """Whether it ends in this time."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, seconds))
            self._timer.cancel()
        return self.process.poll() is not None

    def lines(self) -> list[str]:
        """What it has printed so far; CommandError with its message if it has failed."""
        code = self.process.poll()
        output, errors = (p.read_text(errors="replace") for p in (self._output, self._errors))
        *lines, rest = output.split("\n")
        if code in (None, 0) or (code == 1 and output.startswith("{")):  # which says what failed
            return [*lines, rest] if rest and code is not None else lines
        raise CommandError(without_verb(errors.strip()[-2000:] or "it printed nothing"))


class Commands:
    """Commands that may take longer than a client waits for an answer. One that is asked for again
    while it runs, or once after that, is not started again."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, ...], Command] = {}
        self._lock = threading.Lock()
        atexit.register(self.stop)

    def answer(self, argv: Sequence[str], wait_s: float) -> tuple[bool, list[str]]:
        """Whether the command has ended, and the lines that it has printed so far; CommandError if
        it failed."""
        key = tuple(argv)
        with self._lock:
            if key not in self._running:
                if sum(not one.wait(0.0) for one in self._running.values()) >= MOST_COMMANDS:
                    raise CommandError(f"{MOST_COMMANDS} commands are running; wait for one")
                self._running[key] = Command(argv)
            command = self._running[key]
        if has_ended := command.wait(wait_s):
            with self._lock:
                self._running.pop(key, None)
        return has_ended, command.lines()

    def stop(self) -> None:
        for command in self._running.values():
            command.process.kill()
