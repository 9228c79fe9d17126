"""Judges a run, row by row: the same code while it trains and from its files.

    judge = judge_of(run)
    for row in rows:
        for alert in judge.see(row): ...          # raised or, if `alert.is_over`, ended
    judge.active                                  # names

State depends on the rows only, so a resumed run replays its rows silently and continues.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.alerts.history import History
from gymnasium_solver.runs.alerts.rules import RULES, Rule
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.suggest import did_you_mean

__all__ = ["RULES", "Judge", "check_muted", "judge_of", "judge_rows", "judge_run"]

ALL = "all"  # as a muted name
MOST_ROWS = 100  # a share of a very long budget never needs more rows than this


def check_muted(names: Iterable[str]) -> None:
    """Raise ConfigError for a name in `mute_alerts` that is not a rule."""
    for name in names:
        if name not in RULES and name != ALL:
            hint = did_you_mean(name, [*RULES, ALL]) or f"expected all or {', '.join(RULES)}"
            raise ConfigError(f"mute_alerts: there is no alert {name!r}. {hint}")


class Watch:
    """The state of one rule in one run."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.is_active = False
        self.has_judged = False
        """Whether some row could tell: the metrics were logged, and the warm-up was over."""
        self._n_wrong = self._n_right = 0
        self._wrong_since = 0.0

    def see(self, history: History) -> str | None:
        """What was seen if this row raises the alert; "" if it ends; None if nothing changed."""
        rule, numbers = self.rule, history.numbers
        values: list[float] = []
        for name in rule.needs:
            if name not in numbers:
                return None
            values.append(numbers[name])
        if rule.warm_up and history.progress < rule.warm_up:
            return None
        seen = rule.check(history, *values)
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
        covers = history.progress - self._wrong_since >= rule.share or self._n_wrong >= MOST_ROWS
        is_due = self._n_wrong >= rule.rows and covers
        if self.is_active or not (is_due or rule.at_once(history)):
            return None
        self.is_active = True
        return str(seen)


class Judge:
    def __init__(self, config: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """The content of the run's config.yaml and meta.json."""
        given = config.get("mute_alerts")
        muted = given if isinstance(given, list | tuple) else ()
        self.history = History(config, meta)
        self.watches = [
            Watch(rule) for name, rule in RULES.items() if name not in muted and ALL not in muted
        ]

    @property
    def active(self) -> list[str]:
        return [watch.rule.name for watch in self.watches if watch.is_active]

    @property
    def not_judged(self) -> list[str]:
        """Rules that no row so far could answer."""
        return [watch.rule.name for watch in self.watches if not watch.has_judged]

    def see(self, row: Mapping[str, Any]) -> list[Alert]:
        """The alerts that this row raises or ends."""
        if not self.watches:
            return []
        self.history.see(row)
        told = ((watch.rule, watch.see(self.history)) for watch in self.watches)
        return [self._alert(rule, seen) for rule, seen in told if seen is not None]

    def see_divergence(self, text: str, env_steps: int, of_env: bool = False) -> list[Alert]:
        """The alert of a run that a value ended that is not finite, of the update or the env."""
        rule = RULES["not_finite"]
        for watch in self.watches:
            if watch.rule is rule and not watch.is_active:
                watch.is_active = True
                alert = self._alert(rule, text, env_steps)
                if of_env:
                    fix = f"`gsolve doctor env {self.history.env_id}`; mend it, then resume"
                    meaning = "The environment returned NaN or infinity."
                    alert = replace(alert, meaning=meaning, advice=fix)
                return [alert]
        return []

    def _alert(self, rule: Rule, seen: str, env_steps: int | None = None) -> Alert:
        return Alert(
            name=rule.name,
            text=seen or "is over",
            env_steps=self.history.env_steps if env_steps is None else env_steps,
            metric=rule.metric,
            meaning=rule.meaning,
            advice=rule.advise(self.history) if seen else "",
            is_over=not seen,
        )


def judge_rows(
    judge: Judge, rows: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> list[Alert]:
    """All alerts of a run from its rows and events."""
    found = [alert for row in rows for alert in judge.see(row)]
    for event in events:
        if event.get("kind") == "diverged":
            steps = event.get("env_steps")
            at = steps if isinstance(steps, int) else 0
            found += judge.see_divergence(str(event.get("text")), at, event.get("of_env") is True)
    return found


def judge_of(run: Run) -> Judge:
    return Judge(query.get_config(run), run.meta())


def judge_run(run: Run) -> tuple[list[Alert], Judge]:
    """The alerts of a run, finished or running, and the judge after its last row."""
    judge = judge_of(run)
    return judge_rows(judge, read_jsonl(run.metrics_path), read_jsonl(run.events_path)), judge
