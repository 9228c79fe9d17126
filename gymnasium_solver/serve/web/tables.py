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
        self._n_bytes = 0  # of all tables, as of their last refresh
        self._lock = threading.Lock()

    def of(self, run: Run) -> MetricTable:
        """The table of a run, up to date. Called from several threads, so one at a time."""
        with self._lock:
            table = self._tables.pop(run.id, None) or MetricTable(run)
            self._n_bytes -= table.n_bytes
            try:
                table.refresh()
            finally:
                self._n_bytes += table.n_bytes
                self._tables[run.id] = table
            while len(self._tables) > 1 and self._n_bytes > self.most_bytes:
                self._n_bytes -= self._tables.popitem(last=False)[1].n_bytes
            return table
