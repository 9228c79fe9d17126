"""Where the time of a run goes: `gsolve train CONFIG --profile`.

    profiler = Profiler()
    train(config, runs_root=Path("runs"), profiler=profiler)
    profiler.rows()  # part, depth, calls, seconds

A clock is put around a few methods of one run's own objects (`attach` has the list), and around
nothing where no profile is asked for: a run without one pays nothing, and one with it learns the
same, bit for bit. Every moment counts for the innermost part that runs, so the parts add up to the
whole. On a GPU this is the time of the host: work that the device does later shows up where the
host waits for it.

The first and the last spans also go into `trace.json`, in the trace-event format that
ui.perfetto.dev and chrome://tracing open; what lies between is left out, so that the file of a long
run is as small as that of a short one.
"""

import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.runs.files import write_atomic

if TYPE_CHECKING:
    from gymnasium_solver.training.loop import Trainer

TRACE = "trace.json"  # file in a run
N_FIRST_SPANS = N_LAST_SPANS = 10_000
LOOP, UPDATE = "rest of the loop", "rest of the update"
# In the order they are told; what an update consists of comes under it.
PARTS = ("env", "act", "store", "update", "eval", "log", "checkpoint", LOOP)
UPDATE_PARTS = ("store in the replay", "sample", "gradient", "optimiser", "target network", UPDATE)


class Row(NamedTuple):
    """One line of the table."""

    name: str
    depth: int  # 1: a part of the update
    calls: int
    seconds: float


class Span(NamedTuple):
    """A call, from its start to its end, in seconds since the profile began."""

    name: str
    start_s: float
    end_s: float


class Profiler:
    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        n_first_spans: int = N_FIRST_SPANS,
        n_last_spans: int = N_LAST_SPANS,
    ) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._now, self._began = now, now()
        self._last, self._open = self._began, [LOOP]
        self._is_opaque = False
        self._first: list[Span] = []
        self._ring: deque[Span] = deque(maxlen=n_last_spans)
        self._n_first, self._n_spans = n_first_spans, 0

    # -- the clock --------------------------------------------------------------------------

    def charge(self) -> float:
        """Count the time since the last look for the part that runs; the time now."""
        now = self._now()
        self.seconds[self._open[-1]] += now - self._last
        self._last = now
        return now

    def around(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        opaque: bool = False,
        counted: bool = True,
    ) -> Callable[..., Any]:
        """The function with a clock around it; in an opaque part no other is told apart.

        Not counted: a further step of what another function's call began.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._is_opaque:
                return function(*args, **kwargs)
            start = self.charge()
            self._open.append(name)
            self._is_opaque = opaque
            try:
                return function(*args, **kwargs)
            finally:
                end = self.charge()
                self._open.pop()
                self._is_opaque = False
                self.calls[name] += counted
                self._keep(Span(name, start - self._began, end - self._began))

        return timed

    def around_each(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """As `around`, for a function that gives an iterator: the time to get each item."""
        end = object()

        def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            take = self.around(partial(next, iter(function(*args, **kwargs)), end), name)
            while (item := take()) is not end:
                yield item

        return timed

    def _keep(self, span: Span) -> None:
        self._n_spans += 1
        (self._first if len(self._first) < self._n_first else self._ring).append(span)

    # -- what is timed ----------------------------------------------------------------------

    def attach(self, trainer: "Trainer") -> None:
        """Put the clock around the parts of this one run."""
        collector, run = trainer.collector, trainer.run
        agent: Any = trainer.agent

        def watch(owner: object, method: str, name: str, **options: bool) -> None:
            setattr(owner, method, self.around(getattr(owner, method), name, **options))

        watch(collector, "collect", "store")  # all of it but acting and the envs
        watch(collector.policy, "sample", "act")
        watch(collector.policy, "to_env", "act", counted=False)
        watch(collector.env, "step", "env")
        watch(agent, "update", UPDATE)
        for optimizer in agent.optimizers.values():
            watch(optimizer, "step", "optimiser")
        for owner, attribute in _gradients(agent):
            watch(owner, attribute, "gradient")
        if agent.has_replay:
            watch(agent, "remember", "store in the replay")
            watch(agent, "on_device", "sample", counted=False)
            watch(agent, "update_target", "target network")
            setattr(agent, "samples", self.around_each(agent.samples, "sample"))  # noqa: B010
        watch(trainer, "_evaluate", "eval", opaque=True)
        watch(trainer, "_final_test", "eval", opaque=True)
        watch(trainer, "_save", "checkpoint", opaque=True)
        watch(run, "log_metrics", "log", opaque=True)
        watch(trainer.observer, "on_epoch", "log", opaque=True)

    # -- what is told -----------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """All parts that ran, the parts of the update under it."""
        inner = [name for name in UPDATE_PARTS if name in self.seconds]
        rows = []
        for name in PARTS:
            if name == "update" and inner:
                seconds = sum(self.seconds[part] for part in inner)
                rows.append(Row(name, 0, self.calls[UPDATE], seconds))
                rows += [Row(part, 1, self.calls[part], self.seconds[part]) for part in inner]
            elif name in self.seconds:
                rows.append(Row(name, 0, self.calls[name], self.seconds[name]))
        return rows

    def table(self) -> list[str]:
        """The same for people: share, seconds, calls and milliseconds a call."""
        total = sum(self.seconds.values()) or 1.0
        lines = [f"{'':<24}{'share':>7}{'s':>9}{'calls':>10}{'ms/call':>10}"]
        for row in self.rows():
            per_call = f"{1e3 * row.seconds / row.calls:10.3f}" if row.calls else f"{'':>10}"
            calls = f"{row.calls:>10,}" if row.calls else f"{'':>10}"
            name = "  " * (row.depth + 1) + row.name
            lines.append(
                f"{name:<24}{row.seconds / total:>7.1%}{row.seconds:>9.2f}{calls}{per_call}"
            )
        return lines

    def write_trace(self, folder: Path) -> Path:
        """The spans kept, and the table, as a file that a browser opens."""
        left_out = self._n_spans - len(self._first) - len(self._ring)
        events = [_event(span) for span in (*self._first, *self._ring)]
        if left_out:
            at = self._ring[0].start_s if self._ring else self._first[-1].end_s
            text = f"{left_out:,} spans left out before this"
            events.append({"name": text, "ph": "i", "s": "g", "pid": 1, "tid": 1, "ts": 1e6 * at})
        trace = {
            "traceEvents": [*_NAMES, *events],
            "displayTimeUnit": "ms",
            "otherData": {
                "parts": {row.name: {"s": row.seconds, "calls": row.calls} for row in self.rows()},
                "spans_left_out": left_out,
            },
        }
        path = folder / TRACE
        write_atomic(path, json.dumps(trace, separators=(",", ":")).encode())
        return path


_NAMES: list[dict[str, Any]] = [
    {"name": kind, "ph": "M", "pid": 1, "tid": 1, "args": {"name": name}}
    for kind, name in (("process_name", "gsolve train"), ("thread_name", "training loop"))
]


def _event(span: Span) -> dict[str, Any]:
    name = {"store": "collect", UPDATE: "update"}.get(span.name, span.name)
    start, took = 1e6 * span.start_s, 1e6 * (span.end_s - span.start_s)
    ends = {"ts": round(start, 1), "dur": round(took, 1)}
    return {"name": name, "ph": "X", "pid": 1, "tid": 1, **ends}


def _gradients(agent: object) -> Iterator[tuple[object, str]]:
    """Where an agent keeps its gradients: in itself, or in a part of it."""
    for owner in (agent, *vars(agent).values()):
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, LossGradient):
                yield owner, name
