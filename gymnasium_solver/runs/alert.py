"""An alert: something in a run looks wrong. What was seen, what it usually means, what to try."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Alert:
    name: str
    """Name of the rule, e.g. entropy_collapse. One alert of a name is active at a time."""
    text: str
    """What was seen, in one short line with its numbers."""
    env_steps: int
    metric: str | None = None
    """Full name of the metric whose row in the console is marked."""
    meaning: str = ""
    """What it usually means."""
    advice: str = ""
    """What to try: a flag or a field."""
    is_over: bool = False
    """True when the condition has ended: the mark in the console goes away."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values, for events.jsonl."""
        return asdict(self)
