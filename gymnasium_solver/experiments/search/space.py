"""A search space: parameters with their distributions and conditions.

A parameter is a field of the config or a place inside one (`policy_lr.start`, `env_kwargs.level`).
`overrides` turns the values of a trial into the fields of its config.
"""

import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium_solver.config.foreign import NOTES, our_names
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.experiments.search import ranges
from gymnasium_solver.experiments.search.ranges import Distribution, Latent
from gymnasium_solver.suggest import ask, did_you_mean

Values = dict[str, Any]
ORDER = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
SIGNS = ("!=", ">=", "<=", "=", ">", "<")
MOST_CELLS = 100_000
NOT_SEARCHED = {
    "env_id": "a sweep has one environment",
    "algo_id": "a sweep has one algorithm: sweep each of them, then gsolve compare",
    "seed": "every trial has a seed of its own",
    "seed_train": "every trial has a seed of its own",
    "seed_val": "every trial has a seed of its own",
    "seed_test": "every trial has a seed of its own",
    "variant": "it is a name",
    "project_id": "it is a name",
    "description": "it is a text",
    "spec": "it describes the environment",
    "plugins": "they are imported before the sweep",
    "init_from_run": "set it for all trials with --set init_from_run=RUN",
    "init_optimizer": "set it for all trials with --set init_optimizer=true",
}


@dataclass(frozen=True)
class Condition:
    """`name sign value`: a parameter is searched only where it holds."""

    name: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, given: Mapping[str, Any]) -> bool:
        value: Any = given.get(self.name)
        if self.sign in ("=", "!="):
            is_flag = isinstance(value, bool)  # true is not 1
            found = any(isinstance(v, bool) == is_flag and v == value for v in self.values)
            return found == (self.sign == "=")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and bool(ORDER[self.sign](value, self.values[0]))

    def __str__(self) -> str:
        texts = [v if isinstance(v, str) else json.dumps(v) for v in self.values]
        return f"{self.name}{self.sign}{','.join(texts)}"


@dataclass(frozen=True)
class Param:
    name: str
    distribution: Distribution
    when: tuple[Condition, ...] = ()
    part: Latent | None = None  # the part of the latent range that is searched; None: all of it

    @property
    def field(self) -> str:
        return self.name.partition(".")[0]

    def latent(self) -> Latent:
        return self.distribution.latent() if self.part is None else self.part

    def __str__(self) -> str:
        conditions = "".join(f" if {condition}" for condition in self.when)
        return f"{self.distribution}{conditions}"


def read_param(text: str) -> Param:
    """`name=distribution [if condition]` as a parameter."""
    name, equals, rest = text.partition("=")
    if not equals or not name.strip() or not rest.strip():
        raise ConfigError(f"--param {text}: expected FIELD=RANGE, {ranges.EXAMPLE}")
    return param_of(name.strip(), rest.strip())


def param_of(name: str, text: str) -> Param:
    """A parameter from its name and the text after `=`."""
    text, *conditions = re.split(r"\s+if\s+", text)
    when = tuple(read_condition(part) for part in conditions)
    field, double, kind = name.rpartition("__")
    with told_as(ConfigError, f"{name}={text}", ValueError):
        if double:
            return Param(field, ranges.slm_distribution(kind, ranges.listed(text)), when)
        return Param(name, ranges.read_distribution(text), when)


def read_condition(text: str) -> Condition:
    """`field=value`, `field=a,b`, `field!=value`, `field>value` and so on."""
    for sign in SIGNS:
        name, found, value = text.partition(sign)
        if not found or not name.strip() or not value.strip():
            continue
        values = tuple(parse_value(part) for part in value.split(","))
        if sign not in ("=", "!=") and not isinstance(values[0], int | float):
            raise ConfigError(f"condition {text.strip()!r}: {value.strip()!r} is not a number")
        return Condition(name.strip(), sign, values)
    raise ConfigError(
        f"condition {text.strip()!r}: expected FIELD=VALUE, FIELD!=VALUE or FIELD>VALUE"
    )


@dataclass(frozen=True)
class Space:
    params: tuple[Param, ...]

    def __post_init__(self) -> None:
        names = [param.name for param in self.params]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"{', '.join(twice)}: given twice")
        for outer, inner in itertools.permutations(names, 2):
            if inner.startswith(f"{outer}."):
                raise ConfigError(f"{outer} and {inner} set the same field: keep one")

    def ordered(self) -> list[Param]:
        """Each parameter after those that its conditions name."""
        done: list[Param] = []
        rest = list(self.params)
        names = {param.name for param in rest}
        while rest:
            known = {param.name for param in done}
            ready = [p for p in rest if all(c.name in known or c.name not in names for c in p.when)]
            if not ready:
                circle = ", ".join(param.name for param in rest)
                raise ConfigError(f"the conditions of {circle} depend on each other")
            done += ready
            rest = [param for param in rest if param not in ready]
        return done

    def draw(self, choose: Callable[[Param], Any], fields: Mapping[str, Any]) -> Values:
        """The latent of every parameter whose conditions hold, as `choose` gives it. `fields`: the
        config, for conditions on fields that are not searched."""
        latents: Values = {}
        values = dict(fields)
        for param in self.ordered():
            values.pop(param.name, None)
            if all(condition.holds(values) for condition in param.when):
                latents[param.name] = choose(param)
                values[param.name] = param.distribution.decode(latents[param.name])
        return latents

    def decode(self, latents: Mapping[str, Any]) -> Values:
        """The values of a trial, in the order of the space."""
        return {p.name: p.distribution.decode(latents[p.name]) for p in self.params
                if p.name in latents}  # fmt: skip

    def grid(self, points: int, fields: Mapping[str, Any]) -> list[Values]:
        """The latents of all combinations, each once: of the values of a choice, or of points of a
        range."""
        columns = [param.distribution.grid(points) for param in self.params]
        size = math.prod(map(len, columns))
        if size > MOST_CELLS:
            raise ConfigError(f"the grid has {size:,} combinations; use fewer values, or random")
        found: dict[str, Values] = {}
        for row in itertools.product(*columns):
            cell = {
                param.name: param.distribution.encode(value)
                for param, value in zip(self.params, row, strict=True)
            }
            latents = self.draw(lambda param: cell[param.name], fields)  # noqa: B023 (used here)
            found.setdefault(repr(sorted(latents.items())), latents)
        return list(found.values())

    @property
    def is_conditional(self) -> bool:
        return any(param.when for param in self.params)

    def get(self, name: str) -> Param:
        return next(param for param in self.params if param.name == name)


def check_names(space: Space, known: Iterable[str]) -> None:
    """ConfigError if a parameter or a condition names no field, or one that is not searched."""
    fields = list(known)
    for param in space.params:
        if param.field in NOT_SEARCHED:
            raise ConfigError(f"{param.name} cannot be searched: {NOT_SEARCHED[param.field]}")
        for name in (param.field, *(c.name.partition(".")[0] for c in param.when)):
            if name not in fields:
                raise ConfigError(unknown_field(name, fields))


def unknown_field(name: str, fields: Iterable[str]) -> str:
    known = list(fields)
    hint = ask(our_names(name, known)) or did_you_mean(name, known)
    return " ".join(filter(None, (f"{name}: unknown field.", hint, NOTES.get(name, ""))))


def overrides(values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the values of a trial set. `config`: the fields of the config, as JSON.

    A place inside a schedule keeps the rest of the schedule; a number becomes one."""
    fields: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        field, dot, inner = name.partition(".")
        if dot:
            nested.setdefault(field, {})[inner] = value
        else:
            fields[field] = value
    for field, places in nested.items():
        own = config.get(field)
        is_number = isinstance(own, int | float) and not isinstance(own, bool)
        if is_number and places.keys() <= {"start", "end"}:
            start = places.get("start", own)
            fields[field] = {"start": start, "end": places["end"]} if "end" in places else start
        elif isinstance(own, Mapping) and not any("." in place for place in places):
            fields[field] = {**own, **places}
        else:
            fields |= {f"{field}.{place}": value for place, value in places.items()}
    return fields
