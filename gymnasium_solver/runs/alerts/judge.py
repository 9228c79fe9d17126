"""Judges a run, row by row: the same code while it trains and from its files.

    judge = Judge(facts_of(run))
    for row in rows:
        for alert in judge.see(row): ...          # raised or, if `alert.is_over`, ended
    judge.active                                  # names

State depends on the rows only, so a resumed run replays its rows silently and continues.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.alert import Alert
from gymnasium_solver.runs.alerts import rules_policy, rules_reward, rules_run, rules_value
from gymnasium_solver.runs.alerts.facts import Facts
from gymnasium_solver.runs.alerts.history import History
from gymnasium_solver.runs.alerts.rule import Rule, Watch
from gymnasium_solver.suggest import did_you_mean

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        *rules_run.RULES,
        *rules_reward.RULES,
        *rules_policy.RULES,
        *rules_value.RULES,
    )
}
ALL = "all"  # as a muted name


def check_muted(names: Iterable[str]) -> None:
    """Raise ConfigError for a name in `mute_alerts` that is no rule."""
    for name in names:
        if name not in RULES and name != ALL:
            hint = did_you_mean(name, [*RULES, ALL]) or f"expected all or {', '.join(RULES)}"
            raise ConfigError(f"mute_alerts: there is no alert {name!r}. {hint}")


class Judge:
    def __init__(self, facts: Facts) -> None:
        given = facts.config.get("mute_alerts")
        muted = given if isinstance(given, list | tuple) else ()
        self.history = History(facts)
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
        history, found = self.history, []
        history.see(row)
        for watch in self.watches:
            if watch.needed is not None and watch.needed not in history.row:
                continue
            seen = watch.see(history)
            if seen is not None:
                found.append(self._alert(watch.rule, seen))
        return found

    def see_divergence(self, text: str, env_steps: int) -> list[Alert]:
        """The alert of a run that ended because a value was not finite."""
        rule = RULES["not_finite"]
        for watch in self.watches:
            if watch.rule is rule and not watch.is_active:
                watch.is_active = True
                return [self._alert(rule, text, env_steps)]
        return []

    def _alert(self, rule: Rule, seen: str, env_steps: int | None = None) -> Alert:
        return Alert(
            name=rule.name,
            text=seen or "is over",
            env_steps=self.history.env_steps if env_steps is None else env_steps,
            metric=rule.metric,
            meaning=rule.meaning,
            advice=rule.advice(self.history) if seen else "",
            is_over=not seen,
        )


def judge_rows(
    judge: Judge, rows: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()
) -> list[Alert]:
    """All alerts of a run from its rows and events."""
    found = [alert for row in rows for alert in judge.see(row)]
    for event in events:
        if event.get("kind") == "diverged":
            steps = event.get("env_steps")
            found += judge.see_divergence(
                str(event.get("text")), steps if isinstance(steps, int) else 0
            )
    return found
