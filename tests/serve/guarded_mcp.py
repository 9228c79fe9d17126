"""`python -m tests.serve.guarded_mcp mcp ...`: gsolve whose tools cannot start processes.

What would have been started is checked and refused, so that malformed calls stay cheap. The words
of a client never reach a process with a path out of the runs, a flag, or a NUL.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError

BREACH = "a breach: "
_real_run = subprocess.run


def refuse_start(words: list[str], folder: Path, **_: Any) -> None:
    """In place of `local.start`."""
    if "secret" in str(words) or any(word.startswith("--trust") for word in words):
        raise AssertionError(f"{BREACH}started {words}")
    raise RunError("refused by the test")


def refuse_run(words: Any, **options: Any) -> Any:
    """In place of `subprocess.run`, for `gsolve show` and the like."""
    if not isinstance(words, list) or "gymnasium_solver" not in words:
        return _real_run(words, **options)
    if any(not isinstance(word, str) or "\0" in word for word in words) or "secret/" in str(words):
        raise AssertionError(f"{BREACH}ran {words}")
    return subprocess.CompletedProcess(words, 2, b"", b"gsolve show: refused by the test")


def refuse_command(words: list[str]) -> None:
    """In place of `allowed.Command`, for what may take long."""
    if any("\0" in word for word in words) or "secret/" in str(words):
        raise AssertionError(f"{BREACH}ran {words}")
    raise RunError("refused by the test")


if __name__ == "__main__":
    from gymnasium_solver.cli.main import main
    from gymnasium_solver.serve.mcp import allowed

    allowed.Command = refuse_command  # type: ignore[assignment, misc]

    local.start = refuse_start  # type: ignore[assignment]
    subprocess.run = refuse_run  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
