"""Whether the code that a config names may be imported (runs/origin.py: who made a run)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.config.code import code_named
from gymnasium_solver.errors import TrustError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.origin import is_made_here
from gymnasium_solver.runs.run import Run, is_run


def check_trust(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """TrustError if this file is the config of a run that was not made here and names code.
    `lines`: all blocks of the file."""
    run = Run(path.parent)
    code = sorted({name for fields in lines for name in code_named(fields)})
    if code and is_run(run.path) and not is_made_here(run.meta(), code):
        names = printable(", ".join(code))
        raise TrustError(
            f"{run.path} was not made here, and its config names code to import: {names}. Look at "
            "it first; then repeat the command with --trust, or in Python with trust=True."
        )
