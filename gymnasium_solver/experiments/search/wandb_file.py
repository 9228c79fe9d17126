"""W&B sweep files, as they are written for `wandb sweep`.

Read here as W&B reads them, with two exceptions: `3e-5` is a number (PyYAML makes it a text), and
`log_uniform` with values instead of exponents is refused with the fix.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.distributions import (
    Choice,
    Distribution,
    Normal,
    Uniform,
)
from gymnasium_solver.suggest import did_you_mean

METHODS = {"grid": "grid", "random": "random", "bayes": "auto"}
IGNORED = ("program", "project", "entity", "description", "controller")
KNOWN = (
    *IGNORED, "name", "method", "metric", "parameters", "early_terminate", "run_cap", "command",
)  # fmt: skip
KINDS = (
    "constant", "categorical", "categorical_w_probabilities", "int_uniform", "uniform",
    "q_uniform", "log_uniform", "log_uniform_values", "q_log_uniform", "q_log_uniform_values",
    "inv_log_uniform", "inv_log_uniform_values", "normal", "q_normal", "log_normal",
    "q_log_normal",
)  # fmt: skip
_PLACEHOLDER = re.compile(r"__unfilled<|\$\{")


def read(content: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """The keys of our plan, and notes for the user."""
    unknown = [str(key) for key in content if key not in KNOWN]
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown key. {did_you_mean(unknown[0], KNOWN)}".rstrip())
    target, fixed = _command(content.get("command"))
    params, constants = _parameters(content.get("parameters"))
    plan: dict[str, Any] = {"params": params, "set": {**fixed, **constants}}
    notes: list[str] = []
    if target is not None:
        plan["config"] = _our_config(target, notes)
    if content.get("program"):
        notes.append(f"program {content['program']} is not run: trials are gsolve train")
    if name := content.get("name"):
        plan["name"] = str(name)
    plan["sampler"] = _method(content.get("method", "grid"))
    if content.get("run_cap") is not None:
        plan["trials"] = content["run_cap"]
    plan["metric"] = _metric(content.get("metric"), notes)
    if content.get("early_terminate") is not None:
        plan["prune"] = _early_terminate(content["early_terminate"])
    return plan, notes


VARIANTS = {
    "objects_ppo": "ppo_objects",
    "objects_deterministic_ppo": "ppo_objects_v4",
    "rgb_ppo": "ppo",
    "rgb_deterministic_ppo": "ppo_v4",
}
"""Variants of the Atari configs in the system that these files are written for, and ours."""


def _our_config(target: str, notes: list[str]) -> str:
    """ALE-Pong-v5:objects_ppo is our ALE/Pong-v5:ppo_objects."""
    env_id, colon, variant = target.partition(":")
    if not env_id.startswith("ALE-") or variant not in VARIANTS:
        return target
    ours = f"ALE/{env_id.removeprefix('ALE-')}{colon}{VARIANTS[variant]}"
    notes.append(f"{target} is {ours} here")
    return ours


def _method(method: Any) -> str:
    if method not in METHODS:
        raise ConfigError(f"method {method!r}: expected {', '.join(METHODS)}")
    return METHODS[method]


def _metric(metric: Any, notes: list[str]) -> dict[str, Any]:
    if metric is None:
        return {}
    if not isinstance(metric, Mapping) or not isinstance(metric.get("name"), str):
        raise ConfigError(f"metric: expected {{name: ..., goal: ...}}, not {metric!r}")
    if "goal" not in metric:
        notes.append("metric.goal is not given, so the metric is minimised, as in W&B")
    goal = metric.get("goal", "minimize")
    if goal not in ("maximize", "minimize"):
        raise ConfigError(f"metric.goal {goal!r}: expected maximize or minimize")
    found = {"name": metric["name"], "goal": goal}
    if metric.get("target") is not None:
        found["target"] = float(_number("metric.target", metric["target"]))
    return found


def _early_terminate(block: Any) -> dict[str, Any]:
    if not isinstance(block, Mapping) or block.get("type") != "hyperband":
        raise ConfigError(f"early_terminate: expected {{type: hyperband, ...}}, not {block!r}")
    eta = _number("early_terminate.eta", block.get("eta", 3))
    if block.get("min_iter") is not None:
        first = _number("early_terminate.min_iter", block["min_iter"])
    elif block.get("max_iter") is not None:
        brackets = _number("early_terminate.s", block.get("s", 1))
        last = _number("early_terminate.max_iter", block["max_iter"])
        first = max(1, round(last / eta**brackets))
    else:
        raise ConfigError("early_terminate: hyperband needs min_iter or max_iter")
    return {"rule": "hyperband", "first": float(first), "eta": float(eta), "unit": "rows"}


def _command(command: Any) -> tuple[str | None, dict[str, Any]]:
    """The config and the fields that the command line of a trial names."""
    if command is None:
        return None, {}
    words = [str(word) for word in command] if isinstance(command, list) else []
    words = [word for word in words if not _PLACEHOLDER.search(word)]
    target: str | None = None
    fields: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if not word.startswith("-"):
            if ":" in word and target is None:
                target = word
            continue
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name == "config_id":
            target = value
        elif name in ("override", "set"):
            key, _, text = value.partition("=")
            fields[key] = parse_value(text)
        elif value and name not in ("wandb_sweep", "q", "quiet"):
            fields[name] = parse_value(value)
    return target, fields


def _parameters(block: Any, prefix: str = "") -> tuple[dict[str, str], dict[str, Any]]:
    """Searched parameters as text, and constants; nested ones with dotted names."""
    if not isinstance(block, Mapping) or (not block and not prefix):
        raise ConfigError(f"{prefix or 'parameters'}: expected a block of parameters")
    params: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for key, given in block.items():
        name = f"{prefix}{key}"
        if not isinstance(given, Mapping):
            constants[name] = given  # a bare constant
        elif isinstance(given.get("parameters"), Mapping):
            inner, fixed = _parameters(given["parameters"], f"{name}.")
            params |= inner
            constants |= fixed
        elif "value" in given or given.get("distribution") == "constant":
            constants[name] = given.get("value")
        else:
            try:
                found = distribution(given)
            except (ValueError, ConfigError) as error:
                raise ConfigError(f"{name}: {error}") from None
            if isinstance(found, Choice) and len(found.values) == 1:
                constants[name] = found.values[0]
            else:
                params[name] = str(found)
    return params, constants


def distribution(given: Mapping[str, Any]) -> Distribution:
    """The distribution of one parameter; ValueError or ConfigError says what is wrong."""
    kind = given.get("distribution") or _implied(given)
    if kind not in KINDS:
        raise ValueError(
            f"unknown distribution {kind!r}. {did_you_mean(str(kind), KINDS)}".rstrip()
        )
    if kind.startswith("categorical"):
        return _categories(given)
    step = float(_number("q", given.get("q", 1))) if kind.startswith("q_") else None
    if "normal" in kind:
        mean, std = _number("mu", given.get("mu", 0)), _number("sigma", given.get("sigma", 1))
        return Normal(mean, std, log="log_normal" in kind, step=step)
    if "min" not in given or "max" not in given:
        raise ValueError(f"{kind} needs min and max")
    low, high = _number("min", given["min"]), _number("max", given["max"])
    if "log" in kind and not kind.endswith("_values"):
        low, high = _from_exponents(kind, low, high)
    return Uniform(low, high, log="log" in kind, whole=kind == "int_uniform", step=step)


def _implied(given: Mapping[str, Any]) -> str:
    if "values" in given:
        return "categorical"
    if "mu" in given or "sigma" in given:
        return "normal"
    if "min" in given and "max" in given:
        ends = given["min"], given["max"]
        return "int_uniform" if all(isinstance(end, int) for end in ends) else "uniform"
    raise ValueError("expected value, values, or min and max")


def _categories(given: Mapping[str, Any]) -> Choice:
    values, weights = given.get("values"), given.get("probabilities")
    if not isinstance(values, list) or not values:
        raise ValueError(f"values: expected a list, not {values!r}")
    return Choice(tuple(values), tuple(map(float, weights)) if weights else ())


def _from_exponents(kind: str, low: float, high: float) -> tuple[float, float]:
    """In W&B the ends of log_uniform are exponents of e. Ends such as 1e-5 and 1e-2 are surely
    meant as values: as exponents they are a range from 1.00001 to 1.01."""
    if 0 < low < 1:
        raise ValueError(
            f"distribution {kind} takes exponents of e, so {low:g} to {high:g} means "
            f"{math.exp(low):.4g} to {math.exp(min(high, 700)):.4g}. For values write "
            f"distribution: {kind}_values"
        )
    return math.exp(low), math.exp(high)


def _number(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}, expected a number")
    return value
