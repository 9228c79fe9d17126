"""`python -m tests.serve.guarded_mcp mcp ...`: gsolve whose tools cannot start processes.

What would have been started is checked and refused, so that malformed calls stay cheap. The words
of a client never reach a process with a path out of the runs, a flag, or a NUL.
"""

import sys
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.errors import RunError
from gymnasium_solver.serve import commands

BREACH = "a breach: "


def refuse_start(words: list[str], folder: Path, **_: Any) -> None:
    """In place of `local.start`."""
    if "secret" in str(words) or any(word.startswith("--trust") for word in words):
        raise AssertionError(f"{BREACH}started {words}")
    raise RunError("refused by the test")


def refuse_command(words: list[str]) -> None:
    """In place of `commands.Command`, for `gsolve show` and what may take long."""
    if any(not isinstance(word, str) or "\0" in word for word in words) or "secret/" in str(words):
        raise AssertionError(f"{BREACH}ran {words}")
    raise RunError("refused by the test")


if __name__ == "__main__":
    from gymnasium_solver.cli.main import main

    commands.Command = refuse_command  # type: ignore[assignment, misc]
    local.start = refuse_start  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
