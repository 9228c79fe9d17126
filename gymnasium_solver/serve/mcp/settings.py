"""What the person who starts the server allows."""

from dataclasses import dataclass
from pathlib import Path

MAX_TRAININGS = 2


@dataclass(frozen=True)
class Settings:
    root: Path
    """The folder of all runs. Nothing outside it is read or written."""
    is_read_only: bool = False
    max_trainings: int = MAX_TRAININGS
    """How many runs may train at once in this folder, whoever started them."""
    max_env_steps: int | None = None
    """Budget of one training."""
    max_wall_s: float | None = None
    """A training is saved and stopped after this time."""
    token: str | None = None
    """Over HTTP only a request with this bearer token may change anything."""
    transport: str = "stdio"
    allow_publish: bool = False
    """Whether runs may be sent to the Hub."""

    def budget(self) -> str:
        """The limits in words, for the model."""
        if self.is_read_only:
            return "This server is read-only: nothing can be started, stopped or changed."
        parts = [f"at most {self.max_trainings} trainings at once"]
        if self.max_env_steps is not None:
            parts.append(f"at most {self.max_env_steps:,} env steps per training")
        if self.max_wall_s is not None:
            parts.append(f"a training is saved and stopped after {duration(self.max_wall_s)}")
        return f"Budget: {'; '.join(parts)}."


def duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
