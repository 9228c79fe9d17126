"""An alert: something in a run looks wrong. What was seen, what it usually means, what to try.

`Alert` is one raising or ending, as logged in events.jsonl; `AlertRecord` sums up all of one rule.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Alert:
    name: str  # Name of the rule, e.g. entropy_collapse. One alert of a name is active at a time.
    text: str  # what was seen, in one short line with its numbers
    env_steps: int
    metric: str | None = None  # full name of the metric whose row in the console is marked
    meaning: str = ""  # what it usually means
    advice: str = ""  # what to try: a flag or a field
    is_over: bool = False  # True when the condition has ended: the mark in the console goes away

    def to_dict(self) -> dict[str, Any]:
        """JSON values, for events.jsonl."""
        return asdict(self)


@dataclass(frozen=True)
class AlertRecord:
    name: str
    times: int  # how often it was raised
    first_env_steps: int
    last_env_steps: int  # where it was last raised or, if it is over, where it ended
    is_active: bool
    text: str  # what was seen when it was last raised
    meaning: str
    advice: str
    metric: str | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def span(self) -> str:
        """When it was raised, in words."""
        often = f", raised {self.times} times" if self.times > 1 else ""
        if self.is_active:
            return f"since {self.first_env_steps:,} env steps{often}"
        return f"from {self.first_env_steps:,} to {self.last_env_steps:,} env steps{often}"


def alert_from_event(event: Mapping[str, Any]) -> Alert | None:
    """The alert of an event; None for other events. What a damaged file spoilt is left out."""
    if event.get("kind") != "alert" or not isinstance(event.get("name"), str):
        return None
    types = {field.name: str for field in fields(Alert)} | {"env_steps": int, "is_over": bool}
    given = {name: event[name] for name, kind in types.items() if type(event.get(name)) is kind}
    empty: dict[str, Any] = {"text": "", "env_steps": 0}
    return Alert(**(empty | given))


def records(alerts: Iterable[Alert]) -> list[AlertRecord]:
    """One record per rule; those that are still active come first."""
    found: dict[str, AlertRecord] = {}
    for alert in alerts:
        before = found.get(alert.name)
        if alert.is_over:
            if before is not None:
                found[alert.name] = replace(before, is_active=False, last_env_steps=alert.env_steps)
            continue
        told = (alert.text, alert.meaning, alert.advice, alert.metric)
        times = 1 if before is None else before.times + 1
        first = alert.env_steps if before is None else before.first_env_steps
        found[alert.name] = AlertRecord(alert.name, times, first, alert.env_steps, True, *told)
    return sorted(found.values(), key=lambda record: not record.is_active)


_OR = re.compile(r"[;,]? or |;")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?: ([^\s;,-][^\s;,]*|-\d[^\s;,]*))?")
_FIELD = re.compile(r"\b([a-z][a-z_]*): ([\w.+-]*\w)")


def advised_changes(advice: str, config: Mapping[str, Any]) -> list[dict[str, str]]:
    """The changes of fields that an advice names, one mapping for each of its alternatives; only
    fields that the config has, with another value than its own."""
    found: list[dict[str, str]] = []
    for part in _OR.split(advice):
        flags = [(n.replace("-", "_"), value or "true") for n, value in _FLAG.findall(part)]
        change = {
            name: value
            for name, value in [*flags, *_FIELD.findall(part)]
            if name in config and not value.isupper() and value != str(config[name]).lower()
        }
        if change and change not in found:
            found.append(change)
    return found
