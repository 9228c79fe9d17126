"""Sweep files: our own YAML, W&B sweep files as they are written, and SLM-Lab's `search` block.

    plan, notes = read_sweep_file(Path("config/sweeps/cartpole_ppo_bayes.yaml"))

Each kind is recognised by its keys: `parameters` or `method` (W&B), `search` (SLM-Lab), `params` or
`config` (ours).
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search import wandb_file
from gymnasium_solver.experiments.search.distributions import Choice
from gymnasium_solver.experiments.search.text import (
    KINDS,
    slm_distribution,
)
from gymnasium_solver.suggest import did_you_mean

_PATH = re.compile(r"[\w\[\]]+(?:\.[\w\[\]]+)*")


def read_sweep_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The keys of a plan that a file sets, and notes about what was read differently."""
    content, _ = read_file(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a sweep file, not {content!r}")
    try:
        if content.keys() & {"parameters", "method"}:
            return wandb_file.read(content)
        if (search := _slm_search(content)) is not None:
            return _slm_plan(search)
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
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


def param_text(name: str, given: Any) -> str:
    """A parameter of our YAML as text: log:1e-5..1e-2, [4, 10, 20], or {log: [1e-5, 1e-2]}."""
    if "__" in name and isinstance(given, list):
        return json.dumps(given)
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return str(Choice(tuple(given)))
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: {given!r} is no range; set a fixed value under `set:`")
    block = dict(given)
    when = block.pop("if", None)
    step, weights = block.pop("step", None), block.pop("weights", None)
    if len(block) != 1:
        raise ValueError(f"{name}: expected one of {', '.join(KINDS)} with its values")
    ((kind, values),) = block.items()
    if kind not in KINDS:
        raise ValueError(f"{name}: unknown distribution {kind!r}. {did_you_mean(kind, KINDS)}")
    if not isinstance(values, list) or (kind != "choice" and len(values) != 2):
        raise ValueError(f"{name}: expected {kind}: [{'LOW, HIGH' if kind != 'choice' else '...'}]")
    text = _joined(kind, values, weights)
    if step is not None:
        text += f":{step}"
    return text + "".join(f" if {condition}" for condition in _conditions(name, when))


def _joined(kind: str, values: list[Any], weights: Any) -> str:
    if kind == "choice":
        text = f"choice:{json.dumps(values)}"
        return f"{text}:{json.dumps(weights)}" if weights is not None else text
    sign = "," if kind.endswith("normal") else ".."
    return f"{kind}:{values[0]}{sign}{values[1]}"


def _conditions(name: str, when: Any) -> Iterator[str]:
    """`if: field=value`, a list of such texts, or {field: value or [values]}."""
    if when is None:
        return
    if isinstance(when, str):
        yield when
    elif isinstance(when, list):
        yield from map(str, when)
    elif isinstance(when, Mapping):
        for field, values in when.items():
            listed = values if isinstance(values, list) else [values]
            texts = [v if isinstance(v, str) else json.dumps(v) for v in listed]
            yield f"{field}={','.join(texts)}"
    else:
        raise ValueError(f"{name}: `if` is {when!r}; expected FIELD=VALUE or {{FIELD: VALUE}}")


def _slm_search(content: Mapping[Any, Any]) -> Mapping[str, Any] | None:
    """The `search` block of a spec, or of the only spec in a file of SLM-Lab."""
    if isinstance(content.get("search"), Mapping):
        return dict(content["search"])
    specs = [spec for spec in content.values() if isinstance(spec, Mapping) and "search" in spec]
    searches = [spec["search"] for spec in specs if isinstance(spec["search"], Mapping)]
    if len(searches) > 1:
        raise ConfigError(f"{len(searches)} specs have a search block; keep one of them")
    return dict(searches[0]) if searches else None


def _slm_plan(search: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    params: dict[str, str] = {}
    notes: list[str] = []
    for key, arguments in _flat(search):
        path, double, kind = key.rpartition("__")
        if not double or not _PATH.fullmatch(path):
            raise ValueError(f"search: {key!r} is not key__distribution, as in lr__loguniform")
        if not isinstance(arguments, list):
            raise ValueError(f"search: {key} takes a list, not {arguments!r}")
        name = _our_name(path.rpartition(".")[2])
        if name != path:
            notes.append(f"{path} is read as {name}")
        params[name] = str(slm_distribution(kind, arguments))
    return {"params": params}, notes


def _flat(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Older specs nest the keys; newer ones join them with dots."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for index, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}[{index}].")
        else:
            yield f"{prefix}{key}", value


def _our_name(name: str) -> str:
    from gymnasium_solver.config.foreign import FOREIGN

    ours = FOREIGN.get(name, ())
    return ours[0] if len(ours) == 1 else name


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
