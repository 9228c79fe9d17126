"""The field `interventions`: change fields when a metric stalls.

interventions:
  - {patience: 5, change: {policy_lr: {multiply: 0.5, min: 1e-5}}, max_times: 3}
  - {name: explore, patience: 8, cooldown: 4, revert_after: 6, change: {ent_coef: 0.02}}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.nested import read_block
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.types import Block, Count, Float, NonNegativeInt

_OPERATIONS = ("multiply", "add")
_LIMITS = ("min", "max")


class Intervention(Fields):
    name: str = ""
    """Name in the events. Unset: its place in the list."""
    metric: str = "val/roll/ep_rew/mean"
    """Metric that is watched."""
    mode: Literal["max", "min"] = "max"
    """Whether a higher or a lower value is an improvement."""
    patience: Count = 5
    """Values in a row without an improvement before the change is made."""
    min_delta: Annotated[Float, Field(ge=0)] = 0.0
    """Least difference that counts as an improvement."""
    change: Block
    """New values by field: a value, {multiply: X} or {add: X}, both with min and max as limits."""
    cooldown: NonNegativeInt = 0
    """Values after a change that are not counted as stalled."""
    max_times: Count | None = 1
    """How often the change is made. null: without limit."""
    revert_after: Count | None = None
    """Return to the old values after this many further values. null: never."""
    revert_on_improvement: bool = False
    """Return to the old values as soon as the metric improves."""

    @field_validator("change")
    @classmethod
    def _check_change(cls, change: dict[str, Any]) -> dict[str, Any]:
        if not change:
            raise ValueError("expected at least one field, such as {policy_lr: {multiply: 0.5}}")
        for name, rule in change.items():
            if isinstance(rule, Mapping) and set(rule) & {*_OPERATIONS, *_LIMITS}:
                _check_rule(name, rule)
        return change

    def new_values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values after the change; `config`: all fields as JSON values."""
        return {name: _changed(name, rule, config) for name, rule in self.change.items()}


def _check_rule(name: str, rule: Mapping[str, Any]) -> None:
    unknown = [str(key) for key in rule if key not in (*_OPERATIONS, *_LIMITS)]
    if unknown or sum(key in rule for key in _OPERATIONS) != 1:
        raise ValueError(f"{name}: expected {{multiply: X}} or {{add: X}}, with min and max")
    for key, value in rule.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: {key} must be a number, not {value!r}")


def _changed(name: str, rule: Any, config: Mapping[str, Any]) -> Any:
    if not (isinstance(rule, Mapping) and set(rule) & set(_OPERATIONS)):
        return rule
    old = config.get(name)
    if old is None or isinstance(old, bool | list):
        raise ValueError(f"{name} is {old!r}, which cannot be multiplied or added to")
    factor, plus = rule.get("multiply", 1.0), rule.get("add", 0.0)
    low, high = rule.get("min", -float("inf")), rule.get("max", float("inf"))
    new = Schedule.parse(old).scaled(factor, plus).limited(low, high).dump()
    return round(new) if isinstance(old, int) and isinstance(new, float) else new


def _parse(value: Any) -> list[Intervention]:
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list of {patience: N, change: {field: ...}}")
    rules = []
    for place, item in enumerate(value):
        try:
            rule = read_block(Intervention, item)
        except ValueError as error:
            raise ValueError(f"entry {place + 1}: {error}") from None
        rules.append(rule if rule.name else rule.model_copy(update={"name": str(place + 1)}))
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ValueError(f"two entries have the same name: {', '.join(names)}")
    return rules


Interventions = Annotated[
    list[InstanceOf[Intervention]],
    BeforeValidator(_parse),
    PlainSerializer(lambda rules: [rule.model_dump(exclude_defaults=True) for rule in rules]),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "object"},
            "x-expected": "a list of {patience: N, change: {field: value or {multiply: X}}}",
        }
    ),
]
