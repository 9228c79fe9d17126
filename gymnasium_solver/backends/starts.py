"""How often a run was started without getting on, for backends that keep no record of it."""

from pathlib import Path

from gymnasium_solver.backends import local
from gymnasium_solver.backends.launch import newest_checkpoint


class Starts:
    """Counts starts in a row from the same checkpoint."""

    def __init__(self) -> None:
        self._counts: dict[Path, tuple[int | None, int]] = {}

    def note(self, folder: Path) -> None:
        """A job is being started in this folder, which is created if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        newest, (before, count) = newest_checkpoint(folder), self._counts.get(folder, (None, 0))
        self._counts[folder] = (newest, count + 1 if newest == before else 1)
        # `gsolve train --if-exists resume` clears a run without a checkpoint in place if it is a
        # job's; this mark says so on every machine.
        (folder / local.LOCK).touch()

    def stuck(self, folder: Path) -> int:
        """How many starts in a row began from the newest checkpoint, the last one included."""
        before, count = self._counts.get(folder, (None, 0))
        return count if newest_checkpoint(folder) == before else 0
