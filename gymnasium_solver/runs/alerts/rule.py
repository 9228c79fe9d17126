"""A rule: when an alert is raised, what it means, what to try, and how patient it is.

    @Rule(KL, when="...", meaning="...", advice="...", lasting=Lasting(rows=3))
    def kl_high(history: History, kl: float) -> Seen: ...

The function is called with the values of its metrics, for rows that have them all.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from gymnasium_solver.runs.alerts.history import History

Seen = str | None
"""What was seen that is wrong; "" if nothing is; None if the newest row cannot tell."""
Check = Callable[..., Seen]
MOST_ROWS = 100  # a share of a very long budget never needs more rows than this


class Lasting(NamedTuple):
    """How long something must be wrong before it is an alert."""

    rows: int = 1
    """Rows in a row that must be wrong before it is raised, and right before it ends."""
    share: float = 0.0
    """Share of the budget that the wrong rows must cover, at most 100 rows."""
    warm_up: float = 0.0
    """Share of the budget before it is judged at all."""


ONE_ROW = Lasting()
RULES: "dict[str, Rule]" = {}


@dataclass
class Rule:
    """Declares the function below it as the rule of its name."""

    metric: str
    """The metric whose row in the console is marked."""
    others: tuple[str, ...] = ()
    """More metrics without which a row cannot tell."""
    _: KW_ONLY
    when: str
    """When it is raised, for the documentation."""
    meaning: str
    """What it usually means."""
    advice: str | Callable[[History], str]
    """What to try: a command line or fields."""
    lasting: Lasting = ONE_ROW
    at_once: Callable[[History], bool] = lambda h: False
    """Whether the newest row, if it is wrong, is bad enough to need no patience."""
    is_of_any_row: bool = False
    """Whether it looks at all rows, not only at those that have `metric`, and takes no values."""

    def __call__(self, check: Check) -> Check:
        self.check, self.name = check, check.__name__
        self.needs = () if self.is_of_any_row else (self.metric, *self.others)
        RULES[self.name] = self
        return check

    def advise(self, history: History) -> str:
        return self.advice if isinstance(self.advice, str) else self.advice(history)


class Watch:
    """The state of one rule in one run."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.is_active = False
        self.has_judged = False
        """Whether some row could tell: the metrics were logged, and the warm-up was over."""
        self._n_wrong = self._n_right = 0
        self._wrong_since = 0.0

    def see(self, history: History) -> Seen:
        """What was seen if the alert is raised by this row; "" if it ends; None if nothing
        changed."""
        rule, numbers = self.rule, history.numbers
        values: list[Any] = []
        for name in rule.needs:
            if name not in numbers:
                return None
            values.append(numbers[name])
        if rule.lasting.warm_up and history.progress < rule.lasting.warm_up:
            return None
        seen = rule.check(history, *values)
        if seen is None:
            return None
        self.has_judged = True
        if not seen:
            self._n_wrong, self._n_right = 0, self._n_right + 1
            if self.is_active and self._n_right >= rule.lasting.rows:
                self.is_active = False
                return ""
            return None
        if self._n_wrong == 0:
            self._wrong_since = history.progress
        self._n_wrong, self._n_right = self._n_wrong + 1, 0
        if self.is_active or not (self._is_due(history.progress) or rule.at_once(history)):
            return None
        self.is_active = True
        return seen

    def _is_due(self, progress: float) -> bool:
        rows, share, _ = self.rule.lasting
        covers = progress - self._wrong_since >= share
        return self._n_wrong >= rows and (covers or self._n_wrong >= MOST_ROWS)
