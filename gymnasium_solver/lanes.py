"""Lanes: several programs that run in turns in one thread and do alike work together.

    lanes = Lanes({"gradient": Gradients(), ...})
    lanes.run({"seed 1": train_one, "seed 2": train_two})

    if (lane := lane_for("gradient")) is not None:             # in the code that they run
        return lane.together("gradient", item)

A lane has the turn until it asks for joint work or ends. Once every lane has asked, the kind of
work that is listed first is done, of it what most of them ask for, in one call for all of these. So
lanes need not be in step. Results do not depend on who meets whom: items are independent.

Lanes are greenlets: passing the turn takes a microsecond, where threads take fifty, as they move
from core to core. State of the thread is shared: no lane may ask for joint work within
`torch.no_grad()` or the like.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from greenlet import greenlet

Program = Callable[[], Any]


class Work(Protocol):
    """One kind of work that lanes do together."""

    def key(self, item: Any) -> Hashable:
        """Items with the same key can be worked on together."""

    def __call__(self, items: list[Any]) -> Sequence[Any]:
        """One result for each item."""


class Lane:
    """One of the programs; made by `Lanes`."""

    def __init__(self, lanes: "Lanes", name: str, program: Program) -> None:
        self.name, self.program, self.lanes = name, program, lanes
        self.result: Any = None
        self.error: BaseException | None = None
        self.asks: tuple[tuple[str, Hashable], Work, Any] | None = None
        self.answer: Any = None
        self.problem: BaseException | None = None  # raised by joint work
        self.interruption: type[BaseException] | None = None
        """Set by others: raised in this lane at its next joint work."""
        self.on_signal: Callable[[str], bool] | None = None
        """Takes the name of a signal and asks the program to stop; False if it was asked before.
        None: the program can only be interrupted."""
        self.switch: greenlet

    def together(self, kind: str, item: Any) -> Any:
        """Do work together with the lanes that ask for the same; returns this lane's result. An
        error of the work is raised in each of them."""
        work = self.lanes.works[kind]
        self.asks = ((kind, work.key(item)), work, item)
        self.lanes.hub.switch()
        if self.interruption is not None:
            raise self.interruption
        problem, answer = self.problem, self.answer
        self.problem = self.answer = None
        if problem is not None:
            raise problem
        return answer

    def run(self) -> None:
        try:
            self.result = self.program()
        except KeyboardInterrupt as error:  # meant for all
            self.error = error
            self.lanes.interrupt(type(error))
        except BaseException as error:
            self.error = error


_current: Lane | None = None


def current_lane() -> Lane | None:
    """The lane that has the turn; None outside of lanes, and during joint work."""
    return _current


def lane_for(kind: str) -> Lane | None:
    """The lane that has the turn, if there are others that do this kind of work with it."""
    if _current is None or kind not in _current.lanes.works or len(_current.lanes.active) == 1:
        return None
    return _current


class Lanes:
    def __init__(self, works: Mapping[str, Work]) -> None:
        """`works` by kind, in the order in which they are done."""
        self.works = works
        self._order = {kind: i for i, kind in enumerate(works)}
        self.active: list[Lane] = []
        self.hub: greenlet

    def run(self, programs: Mapping[str, Program]) -> list[Lane]:
        """Run all programs to their ends; the lanes hold their results and errors."""
        global _current
        from greenlet import getcurrent, greenlet

        self.hub = getcurrent()
        lanes = [Lane(self, name, program) for name, program in programs.items()]
        for lane in lanes:
            lane.switch = greenlet(lane.run, self.hub)
        self.active = list(lanes)
        ready = deque(lanes)
        while self.active:
            if not ready:
                ready.extend(self._work_together())
            lane = _current = ready.popleft()
            try:
                lane.switch.switch()
            finally:
                _current = None
            if lane.switch.dead:
                self.active.remove(lane)
        return lanes

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise an error in every lane at its next joint work."""
        for lane in self.active:
            lane.interruption = error

    def _work_together(self) -> Iterable[Lane]:
        """All lanes wait: do what is due, and return the lanes that asked for it."""
        groups: dict[tuple[str, Hashable], list[Lane]] = {}
        for lane in self.active:
            assert lane.asks is not None
            groups.setdefault(lane.asks[0], []).append(lane)
        first = min((self._order[kind] for kind, _ in groups), default=0)
        chosen = max((g for key, g in groups.items() if self._order[key[0]] == first), key=len)
        asked = [lane.asks for lane in chosen if lane.asks is not None]
        try:
            answers = asked[0][1]([item for _, _, item in asked])
            for lane, answer in zip(chosen, answers, strict=True):
                lane.answer = answer
        except BaseException as error:
            for lane in chosen:
                lane.problem = error
        for lane in chosen:
            lane.asks = None
        return chosen
