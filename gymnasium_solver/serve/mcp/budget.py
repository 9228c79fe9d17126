"""The total that all trainings of one server may take: env steps, and time of training.

    left = ledger.left()
    with desk.slots() as (n, folder): ...; ledger.add(job.folder, runs, Cost(50_000, 3600.0))

What runs is counted with all that was set aside for it, what has ended with what it took; so the
total is never passed, also by trainings that outlive the server. It is counted from the start of
the server: a client starts one per session, and `.mcp-log.jsonl` has what earlier ones did.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gymnasium_solver.backends import local
from gymnasium_solver.runs.query import RunSummary


class Cost(NamedTuple):
    env_steps: float = 0
    train_s: float = 0.0  # seconds of training, of several trainings at once each its own

    def plus(self, other: "Cost", sign: int = 1) -> "Cost":
        return Cost(*(one + sign * more for one, more in zip(self, other, strict=True)))


NOTHING = Cost()


def cost_of(runs: Iterable[RunSummary]) -> Cost:
    """What runs have taken so far."""
    known = list(runs)
    return Cost(sum(run.env_steps for run in known), sum(run.wall_s for run in known))


@dataclass(frozen=True)
class Started:
    """A training, an experiment or a search that was started."""

    job: Path  # the folder of its process
    runs: Callable[[], Iterable[RunSummary]]
    before: Cost  # what its runs had taken before: a run that is resumed
    reserved: Cost

    def cost(self) -> Cost:
        return cost_of(self.runs()).plus(self.before, -1)


@dataclass
class Ledger:
    """What was started, against the total; without a limit there is always more."""

    total: Cost
    _open: dict[Path, Started] = field(default_factory=dict)
    _spent: Cost = NOTHING
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def left(self) -> Cost:
        with self._lock:
            for started in list(self._open.values()):
                if not local.is_running(started.job):
                    self._spent = self._spent.plus(started.cost())
                    del self._open[started.job]
            taken = self._spent
            for started in self._open.values():
                taken = taken.plus(started.reserved)
            return self.total.plus(taken, -1)

    def add(
        self,
        job: Path,
        runs: Callable[[], Iterable[RunSummary]],
        reserved: Cost,
        before: Cost = NOTHING,
    ) -> None:
        """Set aside what a job may take. One that was counted already takes this much more."""
        with self._lock:
            if (known := self._open.get(job)) is not None:
                before, reserved = known.before, known.reserved.plus(reserved)
            self._open[job] = Started(job, runs, before, reserved)
