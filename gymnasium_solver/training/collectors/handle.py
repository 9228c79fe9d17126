"""What the learner knows of a collector, whatever carries its messages."""

from typing import Protocol

from gymnasium_solver.training.collectors.messages import Message


class CollectorLost(Exception):
    """The process, or the machine that it ran on, is gone."""


class Handle(Protocol):
    """One collector. Each method raises CollectorLost if it is gone."""

    def wait_ready(self) -> Message:
        """The answer to the start message: ready, or an error."""

    def send(self, message: Message) -> None:
        """Give it weights; does not wait until they are used."""

    def take(self, j: int) -> Message:
        """Rollout j, or an error; waits for it."""

    def close(self) -> None:
        """End it at once. Safe to call twice."""


class Backend(Protocol):
    """Starts collectors."""

    def start(self, message: Message) -> Handle: ...

    def close(self) -> None: ...
