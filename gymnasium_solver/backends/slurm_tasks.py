"""Slurm for runs that are not all known at the start, such as the trials of a sweep.

    backend = SlurmBackend(resources, options=["--partition=gpu"])
    Pool(jobs=8, backend=backend)

Each run is a job array of one task (slurm.py), which Slurm puts into the queue again when it is
preempted. The id of the job is in the folder of the run, so that a coordinator that was killed
finds its jobs again.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.backends import slurm
from gymnasium_solver.backends.resources import Resources
from gymnasium_solver.backends.starts import Starts

FOLDER = "slurm"  # in the folder of a run
ASK_EVERY_S = 2.0  # squeue is not to be asked at every poll


class SlurmBackend:
    def __init__(self, resources: Resources, options: Sequence[str] = ()) -> None:
        self.resources, self.options = resources, list(options)
        self._starts = Starts()
        self._asked: dict[str, tuple[float, bool]] = {}  # job: when, and whether it was active

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object:
        self._starts.note(folder)
        script = slurm.write_script(
            folder.absolute() / FOLDER,
            [list(argv)],
            self.resources,
            name=folder.name,
            options=self.options,
        )
        return slurm.submit(script)

    def is_running(self, folder: Path) -> bool:
        job_id = self._job(folder)
        if job_id is None:
            return False
        asked_s, is_active = self._asked.get(job_id, (float("-inf"), False))
        if time.monotonic() - asked_s >= ASK_EVERY_S:
            is_active = any(slurm.is_active(state) for state in slurm.states(job_id).values())
            self._asked[job_id] = (time.monotonic(), is_active)
        return is_active

    def exit_code(self, folder: Path) -> int | None:
        """Not known: what became of a run is in its folder."""
        return None

    def stuck(self, folder: Path) -> int:
        return self._starts.stuck(folder)

    def stop(self, folder: Path) -> object:
        if (job_id := self._job(folder)) is not None:
            slurm.cancel(folder.absolute() / FOLDER, job_id)
        return None

    def tail(self, folder: Path, lines: int = 20) -> list[str]:
        try:
            text = (folder / FOLDER / "0.log").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-lines:]

    def _job(self, folder: Path) -> str | None:
        try:
            record = json.loads((folder / FOLDER / slurm.RECORD).read_text())
        except (OSError, ValueError):
            return None
        return str(record["id"])
