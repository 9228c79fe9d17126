"""The metric tables of the runs that pages look at, the least recently used ones dropped."""

import threading
from collections import OrderedDict

from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.series import MetricTable

MOST_BYTES = 200_000_000


class Tables:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._tables: OrderedDict[str, MetricTable] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: Run) -> MetricTable:
        """The table of a run, up to date. Called from several threads, so one at a time."""
        with self._lock:
            table = self._tables.pop(run.id, None) or MetricTable(run)
            self._tables[run.id] = table
            table.refresh()
            while len(self._tables) > 1 and self._total() > self.most_bytes:
                self._tables.popitem(last=False)
            return table

    def _total(self) -> int:
        return sum(table.n_bytes for table in self._tables.values())
