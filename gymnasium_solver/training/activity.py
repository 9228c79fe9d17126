"""What the training loop is doing right now, and the signals that ask it to stop.

Callbacks of an observer come between epochs, which are minutes apart in a slow environment. The
loop, the collector and evaluations store plain numbers here as they go, which a display may read at
any time. Only the pause and the stop signal are read by them, and neither changes what is learnt.
Ctrl-C and SIGTERM request a stop after the current epoch, or in a long burst of updates; a second
signal stops immediately.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from types import FrameType
from typing import Literal

from gymnasium_solver.lanes import current_lane
from gymnasium_solver.timing import Timer

Phase = Literal[
    "starting", "training", "collecting", "learning", "evaluating", "testing", "saving", "over"
]
PAUSED = "paused"  # section of the timer
POLL_S = 0.05
TELL_S = 1.0
Teller = Callable[[str, int, int], None]
"""Of phase, finished episodes and all episodes of an evaluation; an empty phase: it is over."""
PREEMPTED = 75
"""Exit code of a run that SIGTERM ended and that can be resumed (EX_TEMPFAIL: try again)."""


class Activity:
    def __init__(self, timer: Timer | None = None) -> None:
        self.timer = timer or Timer()
        self.is_paused = False
        self.paused_s = 0.0  # length of all pauses that have ended
        self._paused_since_s: float | None = None
        self.phase: Phase = "starting"
        """`training` stands for collecting and learning in turns, as with a replay buffer."""
        self.phase_began_s = self.epoch_began_s = self.clock_s()
        self.epoch = 0
        self.epoch_size = 0
        """Env steps of a whole epoch, counting reset rows; a cut epoch has fewer."""
        self.epoch_began_steps = 0
        self.env_steps = 0  # the clock of the run after the last whole rollout
        self.rollout_steps = 0  # env steps of the rollout that is under way
        self.episodes = 0  # finished training episodes
        self.eval_episodes, self.eval_episodes_done = 0, 0
        self.eval_rows = 0  # steps that each env of the running evaluation has taken
        self.saved_steps = 0
        """The clock at the last checkpoint: a stop without saving loses what came after."""
        self.takes_signals = False
        """Whether SIGINT and SIGTERM ask for a stop after this epoch, as they do in the loop."""
        self.stop_signal: str | None = None
        """Name of the signal that asked for a stop after this epoch."""
        self.teller: Teller | None = None
        """Is told about once a second how far a long evaluation is, and at its end."""
        self._told_s: float | None = None

    def clock_s(self) -> float:
        """Seconds on a clock that stands still during a pause."""
        return (self._paused_since_s or perf_counter()) - self.paused_s

    @property
    def steps_now(self) -> int:
        """Env steps so far, those of the running rollout included."""
        return self.env_steps + self.rollout_steps

    def begin(self, phase: Phase) -> None:
        self.phase, self.phase_began_s = phase, self.clock_s()

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.epoch_began_steps = epoch, self.env_steps
        self.epoch_began_s = self.clock_s()

    def begin_evaluation(self, phase: Phase, episodes: int) -> None:
        self.eval_episodes, self.eval_episodes_done, self.eval_rows = episodes, 0, 0
        self.begin(phase)

    def tell_evaluation(self) -> None:
        """Called at every step of an evaluation."""
        if self.teller is None:
            return
        now_s = perf_counter()
        if now_s - (self._told_s or self.phase_began_s + self.paused_s) >= TELL_S:
            self._told_s = now_s
            self.teller(self.phase, self.eval_episodes_done, self.eval_episodes)

    def end_evaluation(self) -> None:
        if self.teller is not None and self._told_s is not None:
            self.teller("", 0, 0)
        self._told_s = None

    def count(self, env_steps: int) -> None:
        """A rollout is complete, and the clock is at `env_steps`."""
        self.rollout_steps = 0
        self.env_steps = env_steps

    def exclude(self, seconds: float) -> None:
        """The whole process stood still for `seconds`: they are not training time."""
        self.timer.exclude(PAUSED, seconds)
        self.paused_s += seconds

    def wait_while_paused(self, is_asked: Callable[[], bool] = lambda: False) -> None:
        """Called by the loop if `is_paused`; returns when that has ended, or at a signal. Or while
        a pause `is_asked` for from outside.

        The time counts neither as training time nor as time of the running section."""
        began_s = self._paused_since_s = perf_counter()
        with self.timer.section(PAUSED):
            # Polled: a signal handler may end the pause, and no lock is safe to take there.
            while (self.is_paused or is_asked()) and self.stop_signal is None:
                sleep(POLL_S)
        self.paused_s += perf_counter() - began_s
        self._paused_since_s = None


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived when there is nothing to save."""


@contextmanager
def signals_handled(
    handler: Callable[[int, FrameType | None], None],
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[None]:
    """Call `handler` at these signals, then restore the handlers."""
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)


def raise_signal(number: int, frame: FrameType | None = None) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def stop_on_signals(activity: Activity) -> Iterator[None]:
    """Note signals in `activity.stop_signal` while the loop runs."""

    def note(name: str) -> bool:
        is_first, activity.stop_signal = activity.stop_signal is None, name
        return is_first

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not note(signal.Signals(number).name):
            raise_signal(number)

    if (lane := current_lane()) is not None:  # one of several trainings, which are told together
        lane.on_signal = note
        try:
            yield
        finally:
            lane.on_signal = None
    elif threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
    else:
        with signals_handled(on_signal):
            activity.takes_signals = True
            try:
                yield
            finally:
                activity.takes_signals = False


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into Terminated outside the loop, during setup and the final test."""
    if current_lane() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with signals_handled(raise_signal, (signal.SIGTERM,)):
        yield


@contextmanager
def sigterm_exits() -> Iterator[None]:
    """End the program with 75 at a SIGTERM where what was done is saved already: before the loop,
    during the final test, in a coordinator once its runs have stopped."""
    with sigterm_raises():
        try:
            yield
        except Terminated:
            raise SystemExit(PREEMPTED) from None
