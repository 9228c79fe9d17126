"""Parameters as text, for `--param` and for our own YAML.

    policy_lr=log:1e-5..1e-2              clip_range=0.1..0.4          n_steps=pow2:32..2048
    clip_range=uniform:0.1..0.4:0.05      n_epochs=4,10,20             gamma=logit:0.9..0.999
    ent_coef=normal:0.01,0.003            hidden_dims=[[64, 64], [256, 256]]
    tau=log:1e-3..0.1 if target_update_freq=1          policy_lr.start=log:1e-5..1e-2
    policy_lr__loguniform=1e-5,1e-2       (SLM-Lab)

A range of two whole numbers is one of whole numbers. A third part is the step.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.distributions import (
    Choice,
    Distribution,
    Logit,
    Normal,
    Pow2,
    Uniform,
)
from gymnasium_solver.experiments.search.space import SIGNS, Condition, Param
from gymnasium_solver.suggest import did_you_mean

KINDS = ("uniform", "log", "int", "logint", "pow2", "logit", "normal", "lognormal", "choice")
_KIND = re.compile(r"([a-z]\w*):(.*)", re.DOTALL)
_EXAMPLE = "for example log:1e-5..1e-2, 0.1..0.4, int:3..20, pow2:32..2048 or 4,10,20"


def read_param(text: str) -> Param:
    """`name=distribution [if condition]` as a parameter."""
    name, equals, rest = text.partition("=")
    if not equals or not name.strip() or not rest.strip():
        raise ConfigError(f"--param {text}: expected FIELD=RANGE, {_EXAMPLE}")
    return param_of(name.strip(), rest.strip())


def param_of(name: str, text: str) -> Param:
    """A parameter from its name and the text after `=`."""
    text, *conditions = re.split(r"\s+if\s+", text)
    when = tuple(read_condition(part) for part in conditions)
    field, double, kind = name.rpartition("__")
    try:
        if double:
            return Param(field, slm_distribution(kind, _arguments(text)), when)
        return Param(name, read_distribution(text), when)
    except ValueError as error:
        raise ConfigError(f"{name}={text}: {error}") from None


def read_distribution(text: str) -> Distribution:
    """The distribution that a text describes; ValueError says what is wrong."""
    match = _KIND.fullmatch(text.strip())
    if match is None:
        kind, body = "", text.strip()
    else:
        kind, body = match[1], match[2].strip()
        if kind not in KINDS and ".." not in body and "," in body:
            return _choice(text.strip())  # values with a colon: mc:rtg,mc:episode
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS) or f"Expected one of {', '.join(KINDS)}."
            raise ValueError(f"unknown distribution {kind!r}. {hint}")
    if kind == "choice" or (not kind and ".." not in body):
        return _choice(body)
    if kind in ("normal", "lognormal"):
        return _normal(kind, body)
    ends, colon, step = body.partition(":")
    low_text, dots, high_text = ends.partition("..")
    if not dots:
        raise ValueError(f"expected LOW..HIGH, {_EXAMPLE}")
    low, high = _number(low_text), _number(high_text)
    if kind in ("pow2", "logit") and colon:
        raise ValueError(f"{kind} takes no step")
    by = _number(step) if colon else None
    return _RANGES[kind or ("int" if _is_whole(low, high, by) else "uniform")](low, high, by)


_RANGES: dict[str, Callable[[float, float, float | None], Distribution]] = {
    "uniform": lambda low, high, step: Uniform(low, high, step=step),
    "log": lambda low, high, step: Uniform(low, high, log=True, step=step),
    "int": lambda low, high, step: Uniform(low, high, whole=True, step=step),
    "logint": lambda low, high, step: Uniform(low, high, log=True, whole=True, step=step),
    "pow2": lambda low, high, step: Pow2(low, high),
    "logit": lambda low, high, step: Logit(low, high),
}


def _is_whole(*numbers: float | None) -> bool:
    return all(number is None or isinstance(number, int) for number in numbers)


def _number(text: str) -> float:
    value = parse_value(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{text.strip()!r} is not a number")
    return value


def _arguments(text: str) -> list[Any]:
    """The arguments of a distribution: a list, or values with commas."""
    value = parse_value(text) if text.startswith("[") else None
    return value if isinstance(value, list) else [parse_value(part) for part in text.split(",")]


def _choice(body: str) -> Choice:
    values, weights = body, ""
    if body.startswith("[") and "]:[" in body.replace(" ", ""):
        cut = re.search(r"\]\s*:\s*\[", body)
        assert cut is not None
        values, weights = body[: cut.start() + 1], body[cut.end() - 1 :]
    listed = parse_value(values) if values.startswith("[") else None
    if not isinstance(listed, list):
        listed = [parse_value(part) for part in values.split(",")]
    if len(listed) == 1 and not body.startswith("["):
        raise ValueError(f"one value is no search: set it with --set, or give a range, {_EXAMPLE}")
    return Choice(tuple(listed), tuple(parse_value(weights)) if weights else ())


def _normal(kind: str, body: str) -> Normal:
    numbers, colon, step = body.partition(":")
    parts = [_number(part) for part in numbers.split(",")]
    if len(parts) != 2:
        raise ValueError(f"expected {kind}:MEAN,STD")
    mean, std = parts
    return Normal(mean, std, log=kind == "lognormal", step=_number(step) if colon else None)


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


SLM = {
    "uniform": 2, "quniform": 3, "loguniform": 2, "qloguniform": 3, "randn": 2, "qrandn": 3,
    "randint": 2, "qrandint": 3, "lograndint": 2, "qlograndint": 3, "choice": 0,
}  # fmt: skip
"""SLM-Lab's distributions, as in key__loguniform: [1e-5, 1e-2], with their number of arguments."""


def slm_distribution(kind: str, arguments: Sequence[Any]) -> Distribution:
    """The distribution behind `key__kind: arguments`; the upper end of randint is excluded."""
    if kind not in SLM:
        hint = did_you_mean(kind, SLM) or f"Expected one of {', '.join(SLM)}."
        raise ValueError(f"unknown distribution {kind!r}. {hint}")
    if kind == "choice":
        return Choice(tuple(arguments))
    if len(arguments) not in (SLM[kind], SLM[kind] + ("log" in kind)):  # some give the log's base
        raise ValueError(f"{kind} takes {SLM[kind]} arguments, but got {list(arguments)}")
    if any(isinstance(a, bool) or not isinstance(a, int | float) for a in arguments):
        raise ValueError(f"{kind} takes numbers, but got {list(arguments)}")
    low, high = arguments[:2]
    step = arguments[2] if kind.startswith("q") else None
    if "randn" in kind:
        return Normal(low, high, step=step)
    whole = "randint" in kind
    is_log = "log" in kind
    return Uniform(low, high - 1 if whole else high, log=is_log, whole=whole, step=step)
