"""Ranges of one searched value, and their text for `--param` and YAML.

    policy_lr=log:1e-5..1e-2              clip_range=0.1..0.4          n_steps=pow2:32..2048
    clip_range=uniform:0.1..0.4:0.05      n_epochs=4,10,20             gamma=logit:0.9..0.999
    ent_coef=normal:0.01,0.005,0..0.1     hidden_dims=[[64, 64], [256, 256]]
    ent_coef=log0:1e-5..0.1               policy_lr__loguniform=1e-5,1e-2 (SLM-Lab)

A range of two whole numbers is one of whole numbers. A third part is the step.

A distribution maps a **latent** number (or one of several options), which a sampler chooses, to the
value that goes into the config: log and uniform ranges take the value itself, pow2 the exponent,
logit the log-odds (as much room between 0.99 and 0.999 as below), normal the quantile, log0 either
0 or a value of a logarithmic range, weighted choices a number in [0, 1]. Values are rounded to six
digits, so that a config shows what was trained. `str()` of a distribution is its text.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.suggest import check_known

KINDS = ("uniform", "log", "log0", "int", "logint", "pow2", "logit", "normal", "lognormal",
         "choice")  # fmt: skip
NORMALS, LOGS, WHOLE = ("normal", "lognormal"), ("log", "log0", "logint"), ("int", "logint")
ZERO_SHARE = 0.1  # share of a range of the kind log0 that means 0
EXAMPLE = "for example log:1e-5..1e-2, 0.1..0.4, int:3..20, pow2:32..2048 or 4,10,20"
TAIL = 0.001  # share of a normal distribution that is cut off at either end


@dataclass(frozen=True)
class Numbers:
    """A latent range, from `low` to `high`, both included."""

    low: float
    high: float
    is_log: bool = False
    is_int: bool = False

    def clamp(self, latent: float) -> Any:
        inside = min(max(latent, self.low), self.high)
        return round(inside) if self.is_int else inside

    def at(self, share: float) -> Any:
        """The latent at a share of the range, from 0 to 1."""
        low, high = (math.log(x) if self.is_log else x for x in (self.low, self.high))
        value = low + (high - low) * share
        return self.clamp(math.exp(value) if self.is_log else value)

    def share(self, latent: float) -> float:
        """The place of a latent in the range, from 0 to 1."""
        points = (self.low, self.high, float(latent))
        low, high, at = (math.log(x) if self.is_log else x for x in points)
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.0

    def spread(self, points: int) -> list[Any]:
        """That many latents from end to end; all of them, if a whole range has fewer."""
        if self.is_int and self.high - self.low < points:
            return list(range(int(self.low), int(self.high) + 1))
        shares = [i / (points - 1) for i in range(points)] if points > 1 else [0.5]
        return list(dict.fromkeys(self.at(share) for share in shares))


@dataclass(frozen=True)
class Options:
    """A latent choice: one of the texts or numbers."""

    options: tuple[Any, ...]

    def clamp(self, latent: Any) -> Any:
        return latent if latent in self.options else self.options[0]

    def at(self, share: float) -> Any:
        return self.options[int(share * len(self.options))]

    def share(self, latent: Any) -> float:
        return self.options.index(latent) / len(self.options)


Latent = Numbers | Options


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, possibly in steps; of the normal kinds mean and standard
    deviation, without the outermost 0.1 % and what lies outside of `bounds`. lognormal is the
    exponential of a normal one."""

    kind: str
    low: float
    high: float
    step: float | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        low, high, step = self.low, self.high, self.step
        if self.kind in NORMALS:
            if high <= 0:
                raise ValueError(f"the standard deviation must be above 0, not {short(high)}")
            if step is not None and step <= 0:
                raise ValueError(f"the step must be above 0, not {short(step)}")
            if not self.latent().low < self.latent().high:
                raise ValueError(f"almost nothing lies between the bounds {self._bounds_text()}")
            return
        if self.kind in ("pow2", "logit") and step is not None:
            raise ValueError(f"{self.kind} takes no step")
        if self.kind == "logit" and not 0 < low < high < 1:
            raise ValueError(f"a logit range lies between 0 and 1, not {short(low)}..{short(high)}")
        for end in (low, high) if self.kind == "pow2" else ():
            if end <= 0 or not math.log2(end).is_integer():
                raise ValueError(f"{short(end)} is not a power of two")
        if not low < high:
            raise ValueError(f"{short(low)} must be below {short(high)}")
        if self.kind in LOGS and low <= 0:
            raise ValueError(f"a logarithmic range must begin above 0, not at {short(low)}")
        if step is not None and not 0 < step <= high - low:
            raise ValueError(f"the step {short(step)} does not fit into the range")

    def latent(self) -> Numbers:
        """What a sampler chooses from."""
        if self.kind in NORMALS:
            low, high = map(self._quantile, self.bounds)
            return Numbers(max(TAIL, low), min(1 - TAIL, high))
        if self.kind == "pow2":
            return Numbers(math.log2(self.low), math.log2(self.high), is_int=True)
        if self.kind == "logit":
            return Numbers(_logit(self.low), _logit(self.high))
        low = self.low
        if self.kind == "log0":  # below the range is 0
            low *= (self.low / self.high) ** (ZERO_SHARE / (1 - ZERO_SHARE))
        return Numbers(low, self.high, self.kind in LOGS, self.kind in WHOLE)

    def decode(self, latent: Any) -> Any:
        """The value in the config."""
        value = float(latent)
        if self.kind == "log0" and value < self.low:
            return 0.0
        if self.kind == "pow2":
            value = 2.0 ** round(latent)
            return int(value) if value >= 1 else value
        if self.kind in NORMALS:
            value = NormalDist(self.low, self.high).inv_cdf(value)
            value = math.exp(value) if self.kind == "lognormal" else value
        elif self.kind == "logit":
            value = 1 / (1 + math.exp(-value))
        if self.step is not None:
            value = round(value / self.step) * self.step
        low, high = self.bounds if self.kind in NORMALS else (self.low, self.high)
        value = min(max(value, low), high)
        return round(value) if self.kind in WHOLE else float(f"{value:.6g}")

    def encode(self, value: Any) -> Any:
        """The latent whose value is nearest; ValueError for a value of another type."""
        at = number(value)
        if self.kind == "pow2":
            at = math.log2(max(at, 1e-300))
        elif self.kind == "logit":
            at = _logit(min(max(at, self.low), self.high))
        elif self.kind in NORMALS:
            at = self._quantile(at)
        return self.latent().clamp(at)

    def _quantile(self, value: float) -> float:
        """The share of a normal kind that lies below a value."""
        if self.kind == "lognormal":
            value = math.log(value) if value > 0 else -math.inf
        return NormalDist(self.low, self.high).cdf(value)

    def _bounds_text(self) -> str:
        return "..".join(short(end) if math.isfinite(end) else "" for end in self.bounds)

    def grid(self, points: int) -> list[Any]:
        """That many of its values, evenly spread; all of them, if it has fewer."""
        return list(dict.fromkeys(self.decode(at) for at in self.latent().spread(points)))

    def __str__(self) -> str:
        sign = "," if self.kind in NORMALS else ".."
        text = f"{self.kind}:{short(self.low)}{sign}{short(self.high)}"
        text += f",{bounds}" if (bounds := self._bounds_text()) != ".." else ""
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
        return Numbers(0.0, 1.0) if self.weights else Options(tuple(map(_plain, self.values)))

    def decode(self, latent: Any) -> Any:
        if not self.weights:
            return self.values[[*map(_plain, self.values)].index(latent)]
        total, likely = 0.0, self.values[0]
        for value, weight in zip(self.values, self.weights, strict=True):
            total += weight
            likely = value if weight else likely
            if float(latent) < total:
                break
        return likely

    def encode(self, value: Any) -> Any:
        """The latent of this value, or of the nearest one if all are numbers."""
        same = [i for i, own in enumerate(self.values) if _same(own, value)]
        if not same:
            try:
                gaps = [abs(number(own) - number(value)) for own in self.values]
            except ValueError:
                raise ValueError(f"{value!r} is not one of {list(self.values)}") from None
            same = [gaps.index(min(gaps))]
        if not self.weights:
            return _plain(self.values[same[0]])
        return sum(self.weights[: same[0]]) + self.weights[same[0]] / 2

    def grid(self, points: int) -> list[Any]:
        return list(self.values)

    def __str__(self) -> str:
        text = f"choice:{json.dumps(list(self.values))}"
        return f"{text}:{json.dumps(list(self.weights))}" if self.weights else text


Distribution = Range | Choice


def short(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.10g}"


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _logit(value: float) -> float:
    return math.log(value / (1 - value))


def _plain(value: Any) -> Any:
    """Lists and blocks as text: samplers take plain options."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return list(a) == list(b)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


# -- texts ----------------------------------------------------------------------------------------


def read_distribution(text: str) -> Distribution:
    """The distribution that a text describes; ValueError says what is wrong."""
    kind, body = "", text.strip()
    if match := re.fullmatch(r"([a-z]\w*):(.*)", body, re.DOTALL):
        kind, rest = match[1], match[2].strip()
        if kind not in KINDS and ".." not in rest and "," in rest:
            return _choice(body)  # values with a colon: mc:rtg,mc:episode
        check_kind(kind, KINDS)
        body = rest
    if kind == "choice" or (not kind and ".." not in body):
        return _choice(body)
    sign = "," if kind in NORMALS else ".."
    numbers, colon, step = body.partition(":")
    parts = numbers.split(sign)
    bounds = parts.pop() if kind in NORMALS and ".." in parts[-1] else ".."
    ends = [_parsed(part) for part in parts] if len(parts) == 2 else []
    if len(ends) != 2 or bounds.count("..") != 1:
        normal = f"expected {kind}:MEAN,STD or {kind}:MEAN,STD,LOW..HIGH"
        raise ValueError(normal if kind in NORMALS else f"expected LOW..HIGH, {EXAMPLE}")
    by = _parsed(step) if colon else None
    are_whole = all(part is None or isinstance(part, int) for part in (*ends, by))
    low, _, high = bounds.partition("..")
    limits = _parsed(low) if low else -math.inf, _parsed(high) if high else math.inf
    return Range(kind or ("int" if are_whole else "uniform"), ends[0], ends[1], by, limits)


def check_kind(kind: str, known: Sequence[str]) -> None:
    check_known(ValueError, kind, known, f"unknown distribution {kind!r}", "Expected one of")


def _parsed(text: str) -> float:
    """A number that keeps its type: 3 is whole, 3.0 is not."""
    value = parse_value(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{text.strip()!r} is not a number")
    return value


def listed(text: str) -> list[Any]:
    """A list, or values with commas."""
    value = parse_value(text) if text.startswith("[") else None
    return value if isinstance(value, list) else [parse_value(part) for part in text.split(",")]


def _choice(body: str) -> Choice:
    values, weights = body, ""
    if cut := re.search(r"\]\s*:\s*\[", body):
        values, weights = body[: cut.start() + 1], body[cut.end() - 1 :]
    found = listed(values)
    if len(found) == 1 and not body.startswith("["):
        raise ValueError(
            f"one value needs no search: set it with --set, or give a range, {EXAMPLE}"
        )
    return Choice(tuple(found), tuple(parse_value(weights)) if weights else ())


SLM = {"uniform": "uniform", "loguniform": "log", "randn": "normal", "randint": "int",
       "lograndint": "logint"}  # fmt: skip
"""SLM-Lab's distributions, as in key__loguniform: [1e-5, 1e-2], and ours; q before one: a step."""


def slm_distribution(kind: str, arguments: Sequence[Any]) -> Distribution:
    """The distribution behind `key__kind: arguments`; the upper end of randint is excluded."""
    check_kind(kind, ["choice", *SLM, *(f"q{name}" for name in SLM)])
    if kind == "choice":
        return Choice(tuple(arguments))
    ours, n = SLM[kind.removeprefix("q")], 2 + kind.startswith("q")
    if len(arguments) not in (n, n + ("log" in kind)):  # some give the log's base
        raise ValueError(f"{kind} takes {n} arguments, but got {list(arguments)}")
    if any(isinstance(a, bool) or not isinstance(a, int | float) for a in arguments):
        raise ValueError(f"{kind} takes numbers, but got {list(arguments)}")
    low, high = arguments[:2]
    step = arguments[2] if kind.startswith("q") else None
    return Range(ours, low, high - 1 if ours in WHOLE else high, step)
