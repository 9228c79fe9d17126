"""Sweep files: our own YAML, W&B sweep files as they are written, and SLM-Lab's `search` block.

Each is recognised by its keys: `parameters` or `method` (W&B), `search` (SLM-Lab), `params` or
`config` (ours). W&B's are read as W&B reads them, with two exceptions: `3e-5` is a number (PyYAML
makes it a text), and `log_uniform` with values instead of exponents is refused with the fix.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.config.foreign import FOREIGN
from gymnasium_solver.config.yaml_file import parse_value, read_file
from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.experiments.search import ranges
from gymnasium_solver.experiments.search.ranges import KINDS, Choice, Range, check_kind
from gymnasium_solver.suggest import did_you_mean

Block = Mapping[Any, Any]
PlanKeys = tuple[dict[str, Any], list[str]]  # the keys of our plan, and notes for the user


def read_sweep_file(path: Path) -> PlanKeys:
    """The keys of a plan that a file sets, and notes about what was read differently."""
    content, _ = read_file(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a sweep file, not {content!r}")
    with told_as(ConfigError, path, ValueError, ConfigError):
        if content.keys() & {"parameters", "method"}:
            return _wandb_plan(content)
        if (search := _slm_search(content)) is not None:
            return _slm_plan(search)
    return {str(key): value for key, value in content.items()}, []


def is_sweep_file(path: Path) -> bool:
    """Does this file describe a sweep, rather than a config?"""
    if path.suffix not in (".yaml", ".yml", ".json") or not path.is_file():
        return False
    content, _ = read_file(path)
    if not isinstance(content, dict):
        return False
    keys = {"parameters", "method", "params", "config"}
    return bool(content.keys() & keys) or _slm_search(content) is not None


def given_params(path: Path) -> dict[str, Any]:
    """The parameters that a W&B agent passes: {field: value} at $WANDB_SWEEP_PARAM_PATH, where each
    value may stand in a block {value: ...}."""
    content, _ = read_file(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected the parameters of a sweep, not {content!r}")
    content.pop("wandb_version", None)
    return {
        str(name): given["value"] if isinstance(given, Mapping) and "value" in given else given
        for name, given in content.items()
    }


# -- ours -----------------------------------------------------------------------------------------


def param_text(name: str, given: Any) -> str:
    """A parameter of our YAML as text: log:1e-5..1e-2, [4, 10, 20], or {log: [1e-5, 1e-2]}."""
    if "__" in name and isinstance(given, list):
        return json.dumps(given)
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return str(Choice(tuple(given)))
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: {given!r} is not a range; set a fixed value under `set:`")
    block = dict(given)
    when = block.pop("if", None)
    step, weights = block.pop("step", None), block.pop("weights", None)
    if len(block) != 1:
        raise ValueError(f"{name}: expected one of {', '.join(KINDS)} with its values")
    ((kind, values),) = block.items()
    check_kind(kind, KINDS)
    if not isinstance(values, list) or (kind != "choice" and len(values) != 2):
        raise ValueError(f"{name}: expected {kind}: [{'LOW, HIGH' if kind != 'choice' else '...'}]")
    if kind == "choice":
        text = str(Choice(tuple(values), tuple(weights or ())))
    else:
        text = str(Range(kind, ranges.number(values[0]), ranges.number(values[1]), step))
    return text + "".join(f" if {condition}" for condition in _conditions(name, when))


def _conditions(name: str, when: Any) -> Iterator[str]:
    """`if: field=value`, a list of such texts, or {field: value or [values]}."""
    if isinstance(when, str):
        yield when
    elif isinstance(when, list):
        yield from map(str, when)
    elif isinstance(when, Mapping):
        for field, values in when.items():
            each = values if isinstance(values, list) else [values]
            texts = [v if isinstance(v, str) else json.dumps(v) for v in each]
            yield f"{field}={','.join(texts)}"
    elif when is not None:
        raise ValueError(f"{name}: `if` is {when!r}; expected FIELD=VALUE or {{FIELD: VALUE}}")


# -- SLM-Lab's ------------------------------------------------------------------------------------


def _slm_search(content: Block) -> Block | None:
    """The `search` block of a spec, or of the only spec in a file of SLM-Lab."""
    if isinstance(content.get("search"), Mapping):
        return dict(content["search"])
    specs = [spec for spec in content.values() if isinstance(spec, Mapping) and "search" in spec]
    searches = [spec["search"] for spec in specs if isinstance(spec["search"], Mapping)]
    if len(searches) > 1:
        raise ConfigError(f"{len(searches)} specs have a search block; keep one of them")
    return dict(searches[0]) if searches else None


def _slm_plan(search: Block) -> PlanKeys:
    params: dict[str, str] = {}
    notes: list[str] = []
    for key, arguments in _flat(search):
        path, double, kind = key.rpartition("__")
        if not double or not re.fullmatch(r"[\w\[\]]+(?:\.[\w\[\]]+)*", path):
            raise ValueError(f"search: {key!r} is not key__distribution, as in lr__loguniform")
        if not isinstance(arguments, list):
            raise ValueError(f"search: {key} takes a list, not {arguments!r}")
        theirs = path.rpartition(".")[2]
        ours = FOREIGN.get(theirs, ())
        name = ours[0] if len(ours) == 1 else theirs
        if name != path:
            notes.append(f"{path} is read as {name}")
        params[name] = str(ranges.slm_distribution(kind, arguments))
    return {"params": params}, notes


def _flat(block: Block, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Older specs nest the keys; newer ones join them with dots."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for index, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}[{index}].")
        else:
            yield f"{prefix}{key}", value


# -- W&B's ----------------------------------------------------------------------------------------

WANDB_KEYS = (
    *("program", "project", "entity", "description", "controller"),  # without a meaning here
    *("name", "method", "metric", "parameters", "early_terminate", "run_cap", "command"),
)
METHODS = {"grid": "grid", "random": "random", "bayes": "auto"}
DISTRIBUTIONS = {
    "constant": "", "categorical": "", "categorical_w_probabilities": "",
    "int_uniform": "int", "uniform": "uniform", "q_uniform": "uniform",
    "log_uniform": "log", "log_uniform_values": "log", "q_log_uniform": "log",
    "q_log_uniform_values": "log", "inv_log_uniform": "log", "inv_log_uniform_values": "log",
    "normal": "normal", "q_normal": "normal", "log_normal": "lognormal",
    "q_log_normal": "lognormal",
}  # fmt: skip
"""W&B's distributions and our kinds of range; q is a step."""
VARIANTS = {
    "objects_ppo": "ppo_objects",
    "objects_deterministic_ppo": "ppo_objects_v4",
    "rgb_ppo": "ppo",
    "rgb_deterministic_ppo": "ppo_v4",
}
"""Variants of the Atari configs in the system that these files are written for, and ours:
ALE-Pong-v5:objects_ppo is our ALE/Pong-v5:ppo_objects."""


def _wandb_plan(content: Block) -> PlanKeys:
    unknown = [str(key) for key in content if key not in WANDB_KEYS]
    if unknown:
        hint = did_you_mean(unknown[0], WANDB_KEYS)
        raise ConfigError(f"{unknown[0]}: unknown key. {hint}".rstrip())
    target, fixed = _command(content.get("command"))
    params, constants = _parameters(content.get("parameters"))
    notes: list[str] = []
    method = content.get("method", "grid")
    if method not in METHODS:
        raise ConfigError(f"method {method!r}: expected {', '.join(METHODS)}")
    plan: dict[str, Any] = {
        "params": params,
        "set": {**fixed, **constants},
        "sampler": METHODS[method],
        "metric": _metric(content.get("metric"), notes),
    }
    if target is not None:
        env_id, colon, variant = target.partition(":")
        plan["config"] = target
        if env_id.startswith("ALE-") and variant in VARIANTS:
            plan["config"] = f"ALE/{env_id.removeprefix('ALE-')}{colon}{VARIANTS[variant]}"
            notes.append(f"{target} is {plan['config']} here")
    if content.get("program"):
        notes.append(f"program {content['program']} is not run: trials are gsolve train")
    if name := content.get("name"):
        plan["name"] = str(name)
    if (run_cap := content.get("run_cap")) is not None:
        plan["trials"] = run_cap
    if (early := content.get("early_terminate")) is not None:
        plan["prune"] = _early_terminate(early)
    return plan, notes


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

    def given(name: str, default: Any = None) -> Any:
        value = block.get(name, default)
        return None if value is None else _number(f"early_terminate.{name}", value)

    eta, first = given("eta", 3), given("min_iter")
    if first is None:
        if given("max_iter") is None:
            raise ConfigError("early_terminate: hyperband needs min_iter or max_iter")
        first = max(1, round(given("max_iter") / eta ** given("s", 1)))
    return {"rule": "hyperband", "first": float(first), "eta": float(eta), "unit": "rows"}


def _command(command: Any) -> tuple[str | None, dict[str, Any]]:
    """The config and the fields that the command line of a trial names."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    words = [word for word in words if "__unfilled<" not in word and "${" not in word]
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
            with told_as(ConfigError, name, ValueError, ConfigError):
                found = _distribution(given)
            if isinstance(found, Choice) and len(found.values) == 1:
                constants[name] = found.values[0]
            else:
                params[name] = str(found)
    return params, constants


def _distribution(given: Block) -> ranges.Distribution:
    """The distribution of one parameter; ValueError or ConfigError says what is wrong."""
    kind = str(given.get("distribution") or _implied(given))
    check_kind(kind, list(DISTRIBUTIONS))
    if kind.startswith("categorical"):
        values, weights = given.get("values"), given.get("probabilities")
        if not isinstance(values, list) or not values:
            raise ValueError(f"values: expected a list, not {values!r}")
        return Choice(tuple(values), tuple(map(float, weights)) if weights else ())
    ours = DISTRIBUTIONS[kind]
    step = float(_number("q", given.get("q", 1))) if kind.startswith("q_") else None
    if "normal" in kind:
        mean, std = _number("mu", given.get("mu", 0)), _number("sigma", given.get("sigma", 1))
        return Range(ours, mean, std, step)
    if "min" not in given or "max" not in given:
        raise ValueError(f"{kind} needs min and max")
    low, high = _number("min", given["min"]), _number("max", given["max"])
    if ours == "log" and not kind.endswith("_values"):
        # The ends are exponents of e. Ends such as 1e-5 and 1e-2 are surely meant as values: as
        # exponents they are a range from 1.00001 to 1.01.
        ends = math.exp(low), math.exp(min(high, 700))
        if 0 < low < 1:
            raise ValueError(
                f"distribution {kind} takes exponents of e, so {low:g} to {high:g} means "
                f"{ends[0]:.4g} to {ends[1]:.4g}. For values write distribution: {kind}_values"
            )
        low, high = ends
    return Range(ours, low, high, step)


def _implied(given: Block) -> str:
    if "values" in given:
        return "categorical"
    if "mu" in given or "sigma" in given:
        return "normal"
    if "min" in given and "max" in given:
        ends = given["min"], given["max"]
        return "int_uniform" if all(isinstance(end, int) for end in ends) else "uniform"
    raise ValueError("expected value, values, or min and max")


def _number(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}, expected a number")
    return value
