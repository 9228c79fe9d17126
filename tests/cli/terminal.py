"""A command in a pseudo terminal of its own: what it shows, keys typed into it, its settings."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path

CODES = re.compile(r"\x1b(\[[?0-9;]*[a-zA-Z]|\]8;[^\x1b]*\x1b\\)")  # colours, cursor, links


class Terminal:
    def __init__(
        self, command: list[str], cwd: Path, size: tuple[int, int] = (100, 40), **env: str
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # the command
            os.chdir(cwd)
            os.environ.update(env, TERM="xterm-256color", COLUMNS=str(size[0]), LINES=str(size[1]))
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a suite in the background
            os.execvp(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.raw = ""

    def wait_for(self, text: str, limit_s: float = 60.0) -> None:
        """Read until a text is shown that was not there when this was called."""
        start, deadline_s = len(self.raw), time.monotonic() + limit_s
        while text not in CODES.sub("", self.raw[start:]):
            is_open = self._read(0.1)
            shown = CODES.sub("", self.raw)[-4000:]
            assert is_open, f"it ended without {text!r}:\n{shown}"
            assert time.monotonic() < deadline_s, f"no {text!r} in:\n{shown}"

    def _read(self, timeout_s: float) -> bool:
        """False at the end of the output."""
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed and waits for Enter, as a shell leaves it."""
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def until_echoes(self, value: bool, limit_s: float = 20.0) -> None:
        deadline_s = time.monotonic() + limit_s
        while self.echoes != value:
            assert time.monotonic() < deadline_s, f"echoes did not become {value}"
            self._read(0.01)

    def end(self) -> int:
        """The exit code, after everything it still writes; negative: the signal that ended it."""
        while self._read(0.1):
            pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End it and whatever it started."""
        os.close(self.fd)  # the kernel sends SIGHUP to the session
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
