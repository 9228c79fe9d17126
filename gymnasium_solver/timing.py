"""Timed sections: where the time of a run goes. This module imports nothing from the package.

    timer = Timer()                       # Timer(detailed=True) with `profile: true`
    with timer.section("update"):         # always measured: a few sections per epoch
        with timer.detail("gradient"):    # measured only when detailed, otherwise free
            grad = self.gradient(batch)
    with timer.section("store"):          # a hot loop switches between parts of one section
        for t in range(n_rows):
            timer.switch("env")           # from here on the time counts as "env"
            step = env.step(actions)
            timer.switch()                # and from here on as "store" again
    timer.seconds["env"], timer.calls["update"]

All time is charged exactly once, to the innermost running section or part, so the seconds add up to
the time since the timer was created. Time outside every section counts as `REST`. On a GPU the
host's time is measured: device work is charged where the host waits for it.

An agent times its inner sections with its `timer` attribute, which the training loop sets;
elsewhere it is `OFF`. Section names inside an update: "store in the replay", "sample", "gradient",
"optimiser", "target network" (training/profile.py prints them in this order).
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeVar

REST = "rest of the loop"
N_FIRST_SPANS = N_LAST_SPANS = 10_000
_NOTHING: AbstractContextManager[None] = nullcontext()

T = TypeVar("T")


class Span(NamedTuple):
    """One pass through a section, in seconds since the timer was created."""

    name: str
    start_s: float
    end_s: float


class Timer:
    def __init__(
        self,
        detailed: bool = False,
        now: Callable[[], float] = time.perf_counter,
        n_first_spans: int = N_FIRST_SPANS,
        n_last_spans: int = N_LAST_SPANS,
    ) -> None:
        self.detailed = detailed
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._now, self._began = now, now()
        self._last = self._part_start = self._began
        self._section = self._running = REST
        self._outer: list[tuple[str, str, float, float]] = []
        self._sections: dict[str, _Section] = {}
        self._first_spans: list[Span] = []
        self._last_spans: deque[Span] = deque(maxlen=n_last_spans)
        self._n_first_spans, self.n_spans = n_first_spans, 0

    # -- sections ---------------------------------------------------------------------------

    def section(self, name: str) -> AbstractContextManager[None]:
        """Charge the time inside the block to `name`."""
        found = self._sections.get(name)
        if found is None:
            found = self._sections[name] = _Section(self, name)
        return found

    def detail(self, name: str) -> AbstractContextManager[None]:
        """A section of a detailed timer; no effect otherwise."""
        return self.section(name) if self.detailed else _NOTHING

    def each(self, name: str, items: Iterable[T]) -> Iterable[T]:
        """Yield the same items; a detailed timer charges the time to get each one to `name`."""
        return self._timed_items(name, iter(items)) if self.detailed else items

    def switch(self, part: str | None = None) -> None:
        """Charge the rest of the running section to `part`; None: to the section itself again."""
        now = self.charge()
        if self.detailed:
            if self._running != self._section:
                self._keep(self._running, self._part_start, now)
            if part is not None:
                self.calls[part] += 1
            self._part_start = now
        self._running = part or self._section

    def exclude(self, name: str, seconds: float) -> None:
        """Charge `seconds` of the time since the last call to `name`, not to what is running."""
        self.charge()
        self.seconds[self._running] -= seconds
        self.seconds[name] += seconds

    def charge(self) -> float:
        """Charge the time since the last call to what is running; returns the current time."""
        now = self._now()
        self.seconds[self._running] += now - self._last
        self._last = now
        return now

    def _timed_items(self, name: str, items: Iterator[T]) -> Iterator[T]:
        end = object()
        take = partial(next, items, end)
        while True:
            with self.section(name):
                item = take()
            if item is end:
                self.calls[name] -= 1  # the end of the iterator is not an item
                return
            yield item

    def _keep(self, name: str, start: float, end: float) -> None:
        self.n_spans += 1
        is_early = len(self._first_spans) < self._n_first_spans
        spans = self._first_spans if is_early else self._last_spans
        spans.append(Span(name, start - self._began, end - self._began))

    @property
    def spans(self) -> tuple[list[Span], list[Span]]:
        """The first and the last spans; `n_spans` also counts those between them."""
        return self._first_spans, list(self._last_spans)


class _Section:
    """Stateless: one object serves every pass through a section, nested or not."""

    __slots__ = ("name", "timer")

    def __init__(self, timer: Timer, name: str) -> None:
        self.timer, self.name = timer, name

    def __enter__(self) -> None:
        timer = self.timer
        now = timer.charge()
        timer._outer.append((timer._section, timer._running, timer._part_start, now))
        timer._section = timer._running = self.name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timer = self.timer
        if timer._running != timer._section:  # an error, or a loop that ended inside a part
            timer.switch()
        now = timer.charge()
        timer._section, timer._running, timer._part_start, start = timer._outer.pop()
        timer.calls[self.name] += 1
        if timer.detailed:
            timer._keep(self.name, start, now)


OFF = Timer()  # for agents outside training; `detail` and `each` have no effect
