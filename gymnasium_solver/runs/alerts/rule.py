"""A rule: when an alert is raised, what it means, what to try, and how patient it is."""

from collections.abc import Callable
from dataclasses import dataclass

from gymnasium_solver.runs.alerts.history import History

Seen = str | None
"""What was seen that is wrong; "" if nothing is; None if the newest row cannot tell."""
MOST_ROWS = 100  # a share of a very long budget never needs more rows than this


@dataclass(frozen=True)
class Rule:
    name: str
    check: Callable[[History], Seen]
    metric: str
    """The metric whose row in the console is marked."""
    when: str
    """When it is raised, for the documentation."""
    meaning: str
    """What it usually means."""
    advice: Callable[[History], str]
    """What to try: a command line or fields."""
    needs_metric: bool = True
    """Whether a row without `metric` cannot tell, so that it need not be checked."""
    at_once: Callable[[History], bool] = lambda h: False
    """Whether the newest row, if it is wrong, is bad enough to need no patience."""
    rows: int = 1
    """Rows in a row that must be wrong before it is raised, and right before it ends."""
    share: float = 0.0
    """Share of the budget that the wrong rows must cover, at most 100 rows."""
    warm_up: float = 0.0
    """Share of the budget before it is judged at all."""


class Watch:
    """The state of one rule in one run."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.needed = rule.metric if rule.needs_metric else None
        """The metric without which a row cannot tell."""
        self.is_active = False
        self.has_judged = False
        """Whether some row could tell: the metrics were logged, and the warm-up was over."""
        self._n_wrong = self._n_right = 0
        self._wrong_since = 0.0

    def see(self, history: History) -> Seen:
        """What was seen if the alert is raised by this row; "" if it ends; None if nothing
        changed."""
        rule = self.rule
        if rule.warm_up and history.progress < rule.warm_up:
            return None
        seen = rule.check(history)
        if seen is None:
            return None
        self.has_judged = True
        if not seen:
            self._n_wrong, self._n_right = 0, self._n_right + 1
            if self.is_active and self._n_right >= rule.rows:
                self.is_active = False
                return ""
            return None
        if self._n_wrong == 0:
            self._wrong_since = history.progress
        self._n_wrong, self._n_right = self._n_wrong + 1, 0
        if self.is_active:
            return None
        if not self._is_due(history.progress) and not self.rule.at_once(history):
            return None
        self.is_active = True
        return seen

    def _is_due(self, progress: float) -> bool:
        covers = progress - self._wrong_since >= self.rule.share
        return self._n_wrong >= self.rule.rows and (covers or self._n_wrong >= MOST_ROWS)
