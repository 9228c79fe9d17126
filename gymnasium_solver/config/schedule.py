"""A hyper-parameter as a function of training progress. docs/config.md#schedules has all forms:

    policy_lr: lin_0.001                             linear, 0.001 at the start, 0 at the end
    gamma: {start: 0.9, end: 0.99, schedule: polynomial, power: 2}
    policy_lr: {start: 0.001, end: 0.0001, schedule: cosine, from: 0.2, to: 80000, warmup: 0.05}
    ent_coef: {schedule: piecewise, points: [[0, 0.01], [0.5, 0.001], [1.0, 0.0]]}

The trainer asks `schedule.at(env_steps, total_env_steps)`; config fields are declared as

    policy_lr: PositiveSchedule = Schedule.constant(3e-4)
    beta: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.constant(0.4)
    gamma: Annotated[float, changing(ge=0, le=1)] = 0.99    a number, unless it is a schedule
"""

import inspect
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from gymnasium_solver.config.marks import all_marks
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import check_known

_LINEAR_TEXT = re.compile(r"lin_([0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?)")

# The keys each shape requires, and those it may have besides `schedule`.
_NEEDS: dict[str, tuple[str, ...]] = {
    "constant": ("start",),
    "linear": ("start", "end"),
    "cosine": ("start", "end"),
    "exponential": ("start", "end"),
    "polynomial": ("start", "end", "power"),
    "rate": ("start", "end", "rate", "every"),
    "periodic": ("start", "end", "cycles"),
    "piecewise": ("points",),
}
_MAY_HAVE: dict[str, tuple[str, ...]] = {"constant": ("warmup",), "piecewise": ()}
_SPAN = ("from", "to", "warmup")

EXPECTED = "a number, lin_NUMBER, or {start: ..., end: ...}"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A value that depends on the env steps done. Build it with `parse` or `constant`."""

    shape: str = "constant"
    start: float = 0.0
    end: float = 0.0
    from_: float = 0.0
    to: float = 1.0
    warmup: float = 0.0
    power: float = 1.0
    rate: float = 1.0
    every: float = 1.0
    cycles: float = 1.0
    points: tuple[tuple[float, float], ...] = ()

    @classmethod
    def constant(cls, value: float) -> "Schedule":
        """The schedule that never changes."""
        return cls(start=float(value), end=float(value))

    @classmethod
    def parse(cls, value: Any) -> "Schedule":
        """Read a schedule as a config writes it; ValueError says what is wrong."""
        if isinstance(value, Schedule):
            return value
        if isinstance(value, str):
            match = _LINEAR_TEXT.fullmatch(value)
            if match is None:
                raise ValueError(f"expected {EXPECTED}")
            return cls(shape="linear", start=float(match[1]))
        if isinstance(value, Mapping):
            return _from_mapping(value)
        return cls.constant(_number("value", value))

    def at(self, env_steps: float, total_env_steps: float) -> float:
        """The value after `env_steps` of a run of `total_env_steps`."""
        if self.shape == "piecewise":
            return self._piecewise(env_steps, total_env_steps)
        warmup = _place(self.warmup, total_env_steps)
        if env_steps < warmup:
            return self.start * env_steps / warmup
        if self.shape == "constant":
            return self.start
        begin = max(_place(self.from_, total_env_steps), warmup)
        finish = _place(self.to, total_env_steps)
        elapsed = min(max(env_steps - begin, 0.0), max(finish - begin, 0.0))
        if self.shape == "rate":
            # Without the tolerance 0.3 / 0.1 would give 2 stairs instead of 3.
            stairs = math.floor(elapsed / _place(self.every, total_env_steps) + 1e-9)
            value = self.start * self.rate**stairs
            return max(value, self.end) if self.rate < 1 else min(value, self.end)
        # An empty span is a jump from `start` to `end`.
        done = elapsed / (finish - begin) if finish > begin else float(env_steps >= finish)
        return self._shaped(done)

    def _shaped(self, done: float) -> float:
        match self.shape:
            case "linear":
                # This form, unlike start + (end - start) * done, is exact at both ends.
                return self.start * (1 - done) + self.end * done
            case "cosine":
                return self.end + (self.start - self.end) * (1 + math.cos(math.pi * done)) / 2
            case "exponential":
                return self.start * (self.end / self.start) ** done
            case "polynomial":
                return self.end + (self.start - self.end) * (1 - done) ** self.power
            case "periodic":
                wave = math.cos(2 * math.pi * self.cycles * done)
                return self.end + (self.start - self.end) * (1 + wave) / 2
        raise AssertionError(f"shape {self.shape!r} has no formula")

    def _piecewise(self, env_steps: float, total_env_steps: float) -> float:
        places = [(_place(at, total_env_steps), value) for at, value in self.points]
        previous_at, previous = places[0]
        for at, value in places:
            if env_steps < at:
                if at == previous_at:  # before the first point
                    return value
                done = (env_steps - previous_at) / (at - previous_at)
                return previous * (1 - done) + value * done
            previous_at, previous = at, value
        return previous

    @property
    def is_constant(self) -> bool:
        """True when the value is the same at every step."""
        return self.shape == "constant" and self.warmup == 0

    @property
    def values(self) -> tuple[float, ...]:
        """The values it is written with. After a warm-up it stays within their range."""
        if self.shape == "piecewise":
            return tuple(value for _, value in self.points)
        return (self.start,) if self.shape == "constant" else (self.start, self.end)

    def changed(
        self, factor: float, plus: float, low: float = -math.inf, high: float = math.inf
    ) -> "Schedule":
        """The same shape with every value times `factor`, plus `plus`, between `low` and `high`."""

        def change(value: float) -> float:
            return min(max(value * factor + plus, low), high)

        points = tuple((at, change(value)) for at, value in self.points)
        return replace(self, start=change(self.start), end=change(self.end), points=points)

    def check(self, total_env_steps: float) -> None:
        """ValueError if its places are out of order in a run of this length."""
        pairs = list(pairwise(at for at, _ in self.points))
        if self.shape not in ("constant", "piecewise"):
            pairs = [(self.from_, self.to), (self.warmup, self.to)]
        for at, next_at in pairs:
            steps, next_steps = _place(at, total_env_steps), _place(next_at, total_env_steps)
            if steps >= next_steps:
                raise ValueError(
                    f"{at:g} (env step {steps:g}) must come before {next_at:g} (env step "
                    f"{next_steps:g}): up to 1 is a fraction of the run, above 1 is env steps"
                )

    def dump(self) -> float | dict[str, Any]:
        """The shortest plain value that parses back equal."""
        if self.is_constant:
            return self.start
        if self.shape == "piecewise":
            return {"schedule": "piecewise", "points": [list(point) for point in self.points]}
        written: dict[str, Any] = {key: getattr(self, key) for key in _NEEDS[self.shape]}
        if self.shape != "linear":
            written["schedule"] = self.shape
        for key, default in (("from", 0.0), ("to", 1.0), ("warmup", 0.0)):
            value = getattr(self, _attribute(key))
            if value != default:
                written[key] = value
        return written

    def __str__(self) -> str:
        if self.shape == "piecewise":
            return " → ".join(f"{value:g}" for value in self.values) + " piecewise"
        text = f"{self.start:g}"
        if self.shape == "periodic":
            text += f" ↔ {self.end:g} periodic"
        elif self.shape != "constant":
            text += f" → {self.end:g} {self.shape}"
        if self.shape not in ("constant", "piecewise") and self.to != 1:
            text += f" until {self.to:g}"
        if self.warmup:
            text += f", warm-up {self.warmup:g}"
        return text


def _attribute(key: str) -> str:
    return "from_" if key == "from" else key


def _place(value: float, total_env_steps: float) -> float:
    """A place in the run, in env steps."""
    return value * total_env_steps if value <= 1 else value


def _number(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Whole numbers can be too large for a float.
    if is_number and abs(value) <= sys.float_info.max:
        return float(value)
    if name == "value":  # the caller says what was given
        raise ValueError(f"expected {EXPECTED}")
    raise ValueError(f"`{name}` must be a number, not {value!r}")


def _from_mapping(given: Mapping[Any, Any]) -> Schedule:
    shape = given.get("schedule", "piecewise" if "points" in given else "linear")
    if isinstance(shape, str) and shape[:1].isupper():
        return _torch_schedule(shape, given)
    if not isinstance(shape, str) or shape not in _NEEDS:
        raise ValueError(
            f"`schedule` must be one of {', '.join(_NEEDS)}, not {shape!r}; or a class of "
            "torch.optim.lr_scheduler, such as StepLR"
        )
    needed = _NEEDS[shape]
    known = (*needed, *_MAY_HAVE.get(shape, _SPAN), "schedule")
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        raise ValueError(
            f"a {shape} schedule has no {', '.join(unknown)}; it takes {', '.join(known)}"
        )
    missing = [key for key in needed if key not in given]
    if missing:
        hint = " (or `schedule: constant`)" if missing == ["end"] else ""
        raise ValueError(f"a {shape} schedule needs {', '.join(missing)}{hint}")
    if shape == "piecewise":
        return Schedule(shape=shape, points=_points(given["points"]))
    numbers: dict[str, Any] = {
        _attribute(key): _number(key, given[key]) for key in given if key != "schedule"
    }
    if shape == "constant":
        numbers["end"] = numbers["start"]
    schedule = Schedule(shape=shape, **numbers)
    _check_numbers(schedule)
    return schedule


def _points(given: Any) -> tuple[tuple[float, float], ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) < 2:
        raise ValueError(f"`points` must be two or more [position, value] pairs, not {given!r}")
    points = []
    for point in given:
        if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
            raise ValueError(f"each of `points` must be a [position, value] pair, not {point!r}")
        points.append((_number("position", point[0]), _number("point value", point[1])))
    positions = [position for position, _ in points]
    if positions[0] < 0 or any(a >= b for a, b in pairwise(positions)):
        raise ValueError(f"the positions of `points` must rise from 0 or more, not {positions}")
    return tuple(points)


def _check_numbers(schedule: Schedule) -> None:
    for key in _SPAN:
        if (value := getattr(schedule, _attribute(key))) < 0:
            raise ValueError(f"`{key}` must be 0 or more, not {value:g}")
    if schedule.from_ >= schedule.to:
        raise ValueError(f"`from` ({schedule.from_:g}) must come before `to` ({schedule.to:g})")
    if schedule.shape == "exponential" and min(schedule.start, schedule.end) <= 0:
        raise ValueError(
            "an exponential schedule needs `start` and `end` above 0: it cannot reach 0"
        )
    if schedule.shape == "polynomial" and schedule.power <= 0:
        raise ValueError(f"`power` must be above 0, not {schedule.power:g}")
    if schedule.shape == "periodic" and schedule.cycles <= 0:
        raise ValueError(f"`cycles` must be above 0, not {schedule.cycles:g}")
    if schedule.shape == "rate":
        if schedule.rate <= 0 or schedule.rate == 1 or schedule.every <= 0 or schedule.start <= 0:
            raise ValueError(
                "a rate schedule needs `start`, `every` and `rate` above 0, and a rate other than 1"
            )
        if (schedule.end > schedule.start) == (schedule.rate < 1):
            raise ValueError(
                f"`rate` {schedule.rate:g} leads away from `end`: it starts at {schedule.start:g} "
                f"and should reach {schedule.end:g}"
            )


# -- schedulers of torch ------------------------------------------------------------------------

PLATEAU = "ReduceLROnPlateau"  # needs a metric: read as an intervention (nested.py)
_TORCH_STEPS = 0.001  # `every`, if it is not given: 1,000 steps in a run
_MOST_TORCH_STEPS = 1_000_000
_TORCH_KEYS = ("start", "options", "every", "scale", "schedule")
# Counts of steps that a class needs: all of the run, if they are not given.
_WHOLE_RUN = ("total_steps", "T_max")


@dataclass(frozen=True, kw_only=True)
class TorchSchedule(Schedule):
    """A class of torch.optim.lr_scheduler, as a function of the env steps: its values are computed
    for a whole run, so there is no state to save."""

    options: tuple[tuple[str, Any], ...] = ()
    scale: float = 1.0  # factor of every value, which an intervention changes

    def at(self, env_steps: float, total_env_steps: float) -> float:
        every = max(_place(self.every, total_env_steps), 1e-9)
        n_steps = max(math.ceil(total_env_steps / every - 1e-9), 1)
        if n_steps > _MOST_TORCH_STEPS:
            raise ConfigError(
                f"{self.shape}: every {self.every:g} means {n_steps:,} steps in this run, above "
                f"{_MOST_TORCH_STEPS:,}; raise `every`"
            )
        done = math.floor(env_steps / every + 1e-9)
        values = _torch_values(self.shape, self.start, self.options, n_steps)
        return self.scale * values[min(done, n_steps)]

    @property
    def is_constant(self) -> bool:
        return False

    @property
    def values(self) -> tuple[float, ...]:
        return (self.scale * self.start,)

    def changed(
        self, factor: float, plus: float, low: float = -math.inf, high: float = math.inf
    ) -> "Schedule":
        if plus:
            raise ValueError(f"it follows torch's {self.shape}, which can only be multiplied")
        if (low, high) != (-math.inf, math.inf):
            raise ValueError(f"it follows torch's {self.shape}, which takes no min and max")
        return replace(self, scale=self.scale * factor)

    def check(self, total_env_steps: float) -> None:
        """Nothing to check: it has no places but `every`."""

    def dump(self) -> dict[str, Any]:
        written: dict[str, Any] = {"schedule": self.shape, "start": self.start}
        if self.options:
            written["options"] = {name: _listed(value) for name, value in self.options}
        more = {"every": (self.every, _TORCH_STEPS), "scale": (self.scale, 1.0)}
        return written | {key: own for key, (own, usual) in more.items() if own != usual}

    def __str__(self) -> str:
        return f"{self.start:g} by {self.shape}"


def _torch_schedule(shape: str, given: Mapping[Any, Any]) -> TorchSchedule:
    unknown = [str(key) for key in given if key not in _TORCH_KEYS]
    if unknown or "start" not in given:
        what = f"has no {', '.join(unknown)}" if unknown else "needs start"
        raise ValueError(
            f"a schedule by torch's {shape} {what}; it takes start, options, every, scale"
        )
    if shape == PLATEAU:
        raise ValueError(f"{PLATEAU} watches a metric: it works for whole fields of a config only")
    options = given.get("options", {})
    if not isinstance(options, Mapping):
        raise ValueError(f"`options` must be a mapping of arguments of {shape}, not {options!r}")
    every = _number("every", given.get("every", _TORCH_STEPS))
    if every <= 0:
        raise ValueError(f"`every` must be above 0, not {every:g}")
    frozen = tuple((str(name), _hashable(value)) for name, value in options.items())
    start, scale = _number("start", given["start"]), _number("scale", given.get("scale", 1.0))
    return TorchSchedule(
        shape=shape, start=start, end=start, every=every, options=frozen, scale=scale
    )


def _hashable(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_hashable(item) for item in value)
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"`options`: expected numbers, texts and lists, not {value!r}")
    return value


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


@cache
def _torch_values(
    name: str, start: float, options: tuple[tuple[str, Any], ...], n_steps: int
) -> list[float]:
    """The learning rates of a scheduler of torch after 0, 1, ... n_steps steps."""
    import torch

    kind = _torch_class(name)
    takes = inspect.signature(kind).parameters
    given = {key: _listed(value) for key, value in options}
    given |= {key: n_steps for key in _WHOLE_RUN if key in takes and key not in given}
    dummy = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=start, momentum=0.9)
    values = []
    try:
        scheduler = kind(dummy, **given)
        dummy.step()  # or torch warns
        for step in range(n_steps + 1):
            values.append(float(dummy.param_groups[0]["lr"]))
            if step + 1 < n_steps:  # OneCycleLR cannot take one more
                scheduler.step()
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"schedule: torch's {name}: {error}") from None
    if not all(math.isfinite(value) for value in values):
        raise ConfigError(f"schedule: torch's {name} is not finite with these options")
    return values


def _torch_class(name: str) -> Any:
    """The class of torch.optim.lr_scheduler; ConfigError if there is none that fits."""
    from torch.optim import lr_scheduler

    known = {
        key: value
        for key, value in vars(lr_scheduler).items()
        if isinstance(value, type) and issubclass(value, lr_scheduler.LRScheduler)
        and not {"lr_lambda", "schedulers"} & set(inspect.signature(value).parameters)
        and key not in ("LRScheduler", "_LRScheduler", PLATEAU)
    }  # fmt: skip
    what = f"schedule: torch has no scheduler {name!r} without functions"
    check_known(ConfigError, name, sorted(known), what, "Known:")
    return known[name]


@dataclass(frozen=True, kw_only=True)
class scheduled:  # lower case: it is used like a function, Annotated[Schedule, scheduled(ge=0)]
    """Makes a field accept any form of a schedule, with all its values within bounds."""

    is_live = True  # what follows a schedule can change while a run trains (marks.py)
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    peak_gt: float | None = None
    """The largest value must be above this: a learning rate may end at 0 but not be 0."""

    @property
    def expected(self) -> str:
        """The bounds in words, for error messages and help."""
        bounds = self._bounds
        return EXPECTED + (f" with values {bounds}" if bounds else "")

    @property
    def _bounds(self) -> str:
        names = {"gt": "> ", "ge": ">= ", "lt": "< ", "le": "<= ", "peak_gt": "a largest one > "}
        given = [(names[f.name], getattr(self, f.name)) for f in fields(self) if f.name in names]
        return " and ".join(f"{sign}{bound:g}" for sign, bound in given if bound is not None)

    def validate(self, given: Any) -> Schedule:
        """Parse, then check every value against the bounds."""
        schedule = Schedule.parse(given)
        inside = (
            (self.gt is None or min(schedule.values) > self.gt)
            and (self.ge is None or min(schedule.values) >= self.ge)
            and (self.lt is None or max(schedule.values) < self.lt)
            and (self.le is None or max(schedule.values) <= self.le)
            and (self.peak_gt is None or max(schedule.values) > self.peak_gt)
        )
        if not inside:
            raise ValueError(f"expected {self.expected}")
        return schedule

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.dump() if isinstance(value, Schedule) else value
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        names = {
            "gt": "exclusiveMinimum",
            "ge": "minimum",
            "lt": "exclusiveMaximum",
            "le": "maximum",
        }
        bounds = {names[key]: getattr(self, key) for key in names if getattr(self, key) is not None}
        number = {"type": "number", **bounds}
        positive = {"type": "number", "exclusiveMinimum": 0}
        properties: dict[str, Any] = {
            **dict.fromkeys(("start", "end"), number),
            "schedule": {"anyOf": [{"enum": list(_NEEDS)}, {"pattern": "^[A-Z]"}]},
            "options": {"type": "object"},
            "scale": {"type": "number"},
            **{key: {"type": "number", "minimum": 0} for key in (*_SPAN, "every")},
            **dict.fromkeys(("rate", "cycles", "power"), positive),
            "points": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        }
        forms = [
            number,
            {"type": "string", "pattern": f"^{_LINEAR_TEXT.pattern}$"},
            {"type": "object", "properties": properties, "additionalProperties": False},
        ]
        return {"anyOf": forms, "x-expected": self.expected}


AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class changing(scheduled):
    """Makes a field of plain numbers accept a schedule too: Annotated[float, changing(ge=0, le=1)].

    A number stays a number. A learner with a schedule in such a field reads the current value from
    its `config`, which it renews before every rollout (`Learner.set_clock`)."""

    whole: bool = False  # only whole numbers; a schedule is rounded
    auto: bool = False
    """Also the word `auto`, in place of which a number is set before a run starts."""

    @property
    def expected(self) -> str:
        number = "a whole number" if self.whole else "a number"
        words = " ".join(filter(None, (number, self._bounds)))
        return words + (", auto, or a schedule" if self.auto else ", or a schedule")

    def validate(self, given: Any) -> Any:
        if self.auto and given == AUTO:
            return given
        if not isinstance(given, Schedule | Mapping) and not str(given).startswith("lin_"):
            number = not isinstance(given, bool) and isinstance(given, int | float)
            if not number or (self.whole and given % 1):
                raise ValueError(f"expected {self.expected}")
        schedule = super().validate(given)
        if not schedule.is_constant:
            return schedule
        return int(schedule.start) if self.whole else schedule.start

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = super().__get_pydantic_json_schema__(schema, handler)
        return found | {"anyOf": [*found["anyOf"], {"const": AUTO}]} if self.auto else found


def marks_of(field: Any) -> list[changing]:
    """The `changing` marks of a field of a config class."""
    return [mark for mark in all_marks(field) if isinstance(mark, changing)]


def at_start(value: Any) -> Any:
    """The first value of a `changing` field."""
    return value.at(0, 1) if isinstance(value, Schedule) else value


Scheduled = Annotated[Schedule, scheduled()]
NonNegativeSchedule = Annotated[Schedule, scheduled(ge=0)]
PositiveSchedule = Annotated[Schedule, scheduled(ge=0, peak_gt=0)]
