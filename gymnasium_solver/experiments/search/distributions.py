"""Distributions of one searched value.

A distribution maps a **latent** number (or one of several options), which a sampler chooses, to
the value that goes into the config:

    Uniform(1e-5, 1e-2, log=True)    the value itself, on a logarithmic scale
    Pow2(32, 2048)                   the exponent; 32, 64, ..., 2048
    Logit(0.9, 0.999)                the log-odds: as much room between 0.99 and 0.999 as below
    Normal(0.2, 0.05)                the quantile of a normal distribution
    Choice((4, 10, 20))              one of the options; with weights: a number in [0, 1]

`str()` is the form that `--param` takes (experiments/search/text.py). Values are rounded to six
digits, so that a config shows what was trained.
"""

import json
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

DIGITS = 6
TAIL = 0.001
"""Share of a normal distribution that is cut off at either end."""


@dataclass(frozen=True)
class Numbers:
    """A latent range, from `low` to `high`, both included."""

    low: float
    high: float
    is_log: bool = False
    is_int: bool = False


@dataclass(frozen=True)
class Options:
    """A latent choice: one of the texts or numbers."""

    options: tuple[Any, ...]


Latent = Numbers | Options


class Distribution(Protocol):
    def latent(self) -> Latent:
        """What a sampler chooses from."""

    def decode(self, latent: Any) -> Any:
        """The value in the config."""

    def encode(self, value: Any) -> Any:
        """The latent whose value is nearest; ValueError for a value of another type."""

    def contains(self, value: Any) -> bool:
        """Is this one of its values?"""

    def grid(self, points: int) -> list[Any]:
        """Its values, or that many of a continuous range, evenly spread."""


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def short(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.10g}"


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def spread(latent: Latent, points: int) -> list[Any]:
    """That many latents from end to end; all of them, if a whole range has fewer."""
    if isinstance(latent, Options):
        return list(latent.options)
    low, high = latent.low, latent.high
    if latent.is_int and high - low < points:
        return [int(low) + i for i in range(int(high - low) + 1)]
    if latent.is_log:
        low, high = math.log(low), math.log(high)
    steps = [low + (high - low) * i / max(points - 1, 1) for i in range(points)]
    if points == 1:
        steps = [(low + high) / 2]
    values = [math.exp(step) for step in steps] if latent.is_log else steps
    inside = [min(max(value, latent.low), latent.high) for value in values]
    return list(dict.fromkeys(round(value) if latent.is_int else value for value in inside))


class _Numeric:
    """What distributions of numbers share."""

    def latent(self) -> Numbers:
        raise NotImplementedError

    def decode(self, latent: Any) -> Any:
        raise NotImplementedError

    def encode(self, value: Any) -> Any:
        raise NotImplementedError

    def contains(self, value: Any) -> bool:
        latent = self.latent()
        ends = number(self.decode(latent.low)), number(self.decode(latent.high))
        try:
            return min(ends) <= number(value) <= max(ends)
        except ValueError:
            return False

    def grid(self, points: int) -> list[Any]:
        values = [self.decode(latent) for latent in spread(self.latent(), points)]
        return list(dict.fromkeys(values))

    def _clamped(self, latent: float) -> Any:
        numbers = self.latent()
        inside = min(max(latent, numbers.low), numbers.high)
        return round(inside) if numbers.is_int else inside


@dataclass(frozen=True)
class Uniform(_Numeric):
    """A range, linear or logarithmic, of numbers or whole numbers, possibly in steps."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"{short(self.low)} must be below {short(self.high)}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range must begin above 0, not at {short(self.low)}")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ValueError(f"the step {short(self.step)} does not fit into the range")

    def latent(self) -> Numbers:
        return Numbers(self.low, self.high, self.log, self.whole)

    def decode(self, latent: Any) -> Any:
        value = float(latent)
        if self.step is not None:
            value = round(value / self.step) * self.step
            value = min(max(value, self.low), self.high)
        return round(value) if self.whole else rounded(value)

    def encode(self, value: Any) -> Any:
        return self._clamped(number(value))

    def __str__(self) -> str:
        kind = {(0, 0): "uniform", (1, 0): "log", (0, 1): "int", (1, 1): "logint"}
        text = f"{kind[self.log, self.whole]}:{short(self.low)}..{short(self.high)}"
        return text if self.step is None else f"{text}:{short(self.step)}"


@dataclass(frozen=True)
class Pow2(_Numeric):
    """Powers of two."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if end <= 0 or not math.log2(end).is_integer():
                raise ValueError(f"{short(end)} is not a power of two")
        if not self.low < self.high:
            raise ValueError(f"{short(self.low)} must be below {short(self.high)}")

    def latent(self) -> Numbers:
        return Numbers(math.log2(self.low), math.log2(self.high), is_int=True)

    def decode(self, latent: Any) -> Any:
        value = 2.0 ** round(latent)
        return int(value) if value >= 1 else value

    def encode(self, value: Any) -> Any:
        return self._clamped(math.log2(max(number(value), 1e-300)))

    def __str__(self) -> str:
        return f"pow2:{short(self.low)}..{short(self.high)}"


@dataclass(frozen=True)
class Logit(_Numeric):
    """Uniform in the log-odds: for values near 0 or 1, such as a discount factor."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 1:
            raise ValueError(
                f"a logit range lies between 0 and 1, not {short(self.low)}..{short(self.high)}"
            )

    def latent(self) -> Numbers:
        return Numbers(_logit(self.low), _logit(self.high))

    def decode(self, latent: Any) -> float:
        value = 1 / (1 + math.exp(-float(latent)))
        return rounded(min(max(value, self.low), self.high))

    def encode(self, value: Any) -> float:
        inside = min(max(number(value), self.low), self.high)
        return float(self._clamped(_logit(inside)))

    def __str__(self) -> str:
        return f"logit:{short(self.low)}..{short(self.high)}"


def _logit(value: float) -> float:
    return math.log(value / (1 - value))


@dataclass(frozen=True)
class Normal(_Numeric):
    """A normal distribution, or with `log` its exponential; the outermost 0.1 % are cut off."""

    mean: float
    std: float
    log: bool = False
    whole: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        if self.std <= 0:
            raise ValueError(f"the standard deviation must be above 0, not {short(self.std)}")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"the step must be above 0, not {short(self.step)}")

    def latent(self) -> Numbers:
        return Numbers(TAIL, 1 - TAIL)

    def decode(self, latent: Any) -> Any:
        value = NormalDist(self.mean, self.std).inv_cdf(float(latent))
        value = math.exp(value) if self.log else value
        if self.step is not None:
            value = round(value / self.step) * self.step
        return round(value) if self.whole else rounded(value)

    def encode(self, value: Any) -> Any:
        given = number(value)
        if self.log:
            given = math.log(given) if given > 0 else -math.inf
        return self._clamped(NormalDist(self.mean, self.std).cdf(given))

    def __str__(self) -> str:
        text = f"{'lognormal' if self.log else 'normal'}:{short(self.mean)},{short(self.std)}"
        return text if self.step is None else f"{text}:{short(self.step)}"


@dataclass(frozen=True)
class Choice:
    """One of several values of any type; `weights` make some more likely."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("no values are given")
        if len({json.dumps(value) for value in self.values}) < len(self.values):
            raise ValueError("a value is given twice")
        if self.weights and len(self.weights) != len(self.values):
            raise ValueError(
                f"{len(self.weights)} probabilities for {len(self.values)} values are given"
            )
        if self.weights and (min(self.weights) < 0 or not math.isclose(sum(self.weights), 1)):
            raise ValueError("probabilities must be 0 or more, with the sum 1")

    def latent(self) -> Latent:
        if self.weights:
            return Numbers(0.0, 1.0)
        return Options(tuple(map(_plain, self.values)))

    def decode(self, latent: Any) -> Any:
        if not self.weights:
            return self.values[[*map(_plain, self.values)].index(latent)]
        total = 0.0
        for value, weight in zip(self.values, self.weights, strict=True):
            total += weight
            if float(latent) < total:
                return value
        return [v for v, weight in zip(self.values, self.weights, strict=True) if weight][-1]

    def encode(self, value: Any) -> Any:
        index = self.index(value)
        if not self.weights:
            return _plain(self.values[index])
        return sum(self.weights[:index]) + self.weights[index] / 2

    def index(self, value: Any) -> int:
        """The place of this value, or of the nearest one if all are numbers."""
        if (same := [i for i, own in enumerate(self.values) if _same(own, value)]) != []:
            return same[0]
        try:
            distances = [abs(number(own) - number(value)) for own in self.values]
        except ValueError:
            raise ValueError(f"{value!r} is not one of {list(self.values)}") from None
        return distances.index(min(distances))

    def contains(self, value: Any) -> bool:
        return any(_same(own, value) for own in self.values)

    def grid(self, points: int) -> list[Any]:
        return list(self.values)

    def __str__(self) -> str:
        text = f"choice:{json.dumps(list(self.values))}"
        return f"{text}:{json.dumps(list(self.weights))}" if self.weights else text


def _plain(value: Any) -> Any:
    """Lists and blocks as text: samplers take plain options."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b or (isinstance(a, list | tuple) and isinstance(b, list | tuple) and
                           list(a) == list(b)))  # fmt: skip
