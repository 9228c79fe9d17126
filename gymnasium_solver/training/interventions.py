"""Changes that a run makes to itself when a metric stalls (`interventions`).

Rules look at the logged rows. What they decide is made by live edits (training/live.py) at the
start of the next epoch, so it is recorded like any other change. Their state is part of the
progress, which checkpoints save: a resumed run decides the same.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gymnasium_solver.config.interventions import Intervention
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.marks import check_live
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config


@dataclass
class RuleState:
    """What a rule remembers. All values are JSON types."""

    best: float | None = None
    stalled: int = 0
    cooldown: int = 0
    times: int = 0
    old: dict[str, Any] | None = None
    """Values to return to; None if nothing is to be reverted."""
    age: int = 0
    due: dict[str, Any] | None = None
    """The change to make at the start of the next epoch."""
    why: str = ""


def watch_row(config: Config, states: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Let every rule see a row of metrics; `states` (by name of the rule) is updated."""
    for rule in config.interventions:
        value = row.get(rule.metric)
        if value is None or math.isnan(value):
            continue
        state = RuleState(**states.get(rule.name, {}))
        _see(rule, state, float(value), config)
        states[rule.name] = asdict(state)


def take_due(config: Config, states: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(source, changes) of every change that is due; they count as made."""
    found = []
    for rule in config.interventions:
        state = states.get(rule.name, {})
        if state.get("due") is not None:
            found.append((f"rule {rule.name}: {state['why']}", state["due"]))
            state["due"] = None
    return found


def _see(rule: Intervention, state: RuleState, value: float, config: Config) -> None:
    signed = value if rule.mode == "max" else -value
    improved = state.best is None or signed > state.best + rule.min_delta
    if state.old is not None:
        state.age += 1
        is_over = rule.revert_after is not None and state.age >= rule.revert_after
        if is_over or (improved and rule.revert_on_improvement):
            state.due, state.old = state.old, None
            state.why = "reverted"
    if improved:
        state.best, state.stalled = signed, 0
        return
    if state.cooldown > 0:
        state.cooldown -= 1
        return
    state.stalled += 1
    is_left = rule.max_times is None or state.times < rule.max_times
    if state.stalled < rule.patience or not is_left or state.old is not None or state.due:
        return
    now = config_dict(config)
    state.due = rule.new_values(now)
    state.why = f"{rule.metric} stalled {state.stalled} times"
    if rule.revert_after is not None or rule.revert_on_improvement:
        state.old, state.age = {name: now[name] for name in rule.change}, 0
    state.times, state.stalled, state.cooldown = state.times + 1, 0, rule.cooldown


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Fields with different values, as [before, after]."""
    return {
        name: [before.get(name), after.get(name)]
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }


def edited(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with some fields changed; ConfigError if it is invalid, or if one of them cannot
    change while a run trains."""
    before = config_dict(config)
    after = build_config(apply_overrides(before, changes))
    check_live(type(config), differences(before, config_dict(after)))
    return after


def check_interventions(config: Config) -> None:
    """ConfigError if a rule changes a field that does not exist, cannot change, or would get an
    invalid value."""
    bare = config.replace(interventions=[])
    for rule in config.interventions:
        try:
            unknown = [name for name in rule.change if name not in type(config).model_fields]
            if unknown:
                raise ConfigError(f"{config.algo_id} has no field {', '.join(unknown)}")
            edited(bare, rule.new_values(config_dict(bare)))
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"interventions: {rule.name}: {error}") from None
