"""An environment that nobody has tuned: measure it, choose, race, check, judge (solve.py)."""

from pathlib import Path
from typing import Any

from gymnasium_solver.runs.files import read_json

FILE = "auto.json"
STORY = (
    "env_id", "budget", "probe", "lines", "race", "winner", "restart", "checks", "verdict",
)  # fmt: skip


def is_solve(folder: Path) -> bool:
    """Whether the folder of an experiment was made by `gsolve solve`."""
    return (folder / FILE).is_file()


def story(folder: Path) -> dict[str, Any] | None:
    """What was measured and decided so far, for those who show it; None for other experiments."""
    if not is_solve(folder):
        return None
    state = read_json(folder / FILE, "Restore it from a copy.")
    candidates = list(state.get("candidates", {}))
    return {name: state.get(name) for name in STORY} | {"candidates": candidates}
