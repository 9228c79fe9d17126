"""The declaration of a metric."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

Better = Literal["up", "down"]
Bounds = tuple[float | None, float | None]
FRACTION: Bounds = (0.0, 1.0)
POSITIVE: Bounds = (0.0, None)


@dataclass(frozen=True)
class Metric:
    name: str
    """`<train|val|test>/<group>/<metric>`. A part in angle brackets stands for any text:
    `train/hp/<field>`."""
    description: str
    precision: int = 4
    """Decimal places when printed."""
    better: Better | None = None
    """Which direction is better; None if neither is."""
    group: str = ""
    """Its section of the table: `train/roll`, `train/opt`, `val/roll`, ..."""
    unit: str = ""
    """`steps`, `s`, `nats`, ...; empty for a plain number."""
    bounds: Bounds = (None, None)
    """Values outside are impossible and raise an alert."""
    priority: int | None = None
    """Place in the console table, the lowest first; None: not shown there."""
    may_be_null: bool = False
    """Whether a row may have null for it: where it is not defined, or not yet."""
    is_detail: bool = False
    """Computed only every few epochs (`log_details_freq_epochs`)."""

    @property
    def show(self) -> bool:
        """Whether the console table shows it."""
        return self.priority is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """The names that a name with angle brackets stands for; None for a single name."""
        if "<" not in self.name:
            return None
        return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>.+)", self.name))

    @property
    def is_pattern(self) -> bool:
        return self._pattern is not None

    def of(self, name: str) -> Self | None:
        """The declaration for one name that this pattern stands for; None if it does not."""
        match = self._pattern.fullmatch(name) if self._pattern else None
        if match is None:
            return None
        text = self.description
        for part, value in match.groupdict().items():
            text = text.replace(f"<{part}>", value)
        return replace(self, name=name, description=text)

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self.precision}f}"


def in_group(group: str, *metrics: Metric) -> list[Metric]:
    """The metrics of a group, whose names begin with it."""
    return [replace(m, name=f"{group}/{m.name}", group=group) for m in metrics]


def mean_and_std(name: str, what: str, precision: int = 4) -> list[Metric]:
    """Two metrics that are computed at the cadence of the details."""
    return [
        Metric(f"{name}/mean", f"Mean of {what}", precision, is_detail=True),
        Metric(
            f"{name}/std",
            f"Standard deviation of {what}",
            precision,
            bounds=POSITIVE,
            is_detail=True,
        ),
    ]
