"""The winner of a sweep as a variant of a config file, with where it comes from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.search.space import overrides
from gymnasium_solver.experiments.search.sweep_report import final_cells, number_text
from gymnasium_solver.experiments.search.view import View
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.version import __version__

SWEEP_ONLY = ("eval_freq_steps", "eval_freq_epochs", "seed")
"""Fields that a sweep sets for comparison only."""
POPULATION_ONLY = ("early_stop_on_eval_threshold", "early_stop_on_train_threshold", "max_epochs")


def best_lines(found: View, number: int) -> tuple[dict[str, Any], list[str]]:
    """The lines of a trial's config, as short as the config it comes from, and its provenance."""
    if not 0 <= number < len(found.trials):
        raise RunError(f"{found.sweep.id} has no trial {number}: 0 to {len(found.trials) - 1}")
    trial = found.trials[number]
    content, _ = read_file(found.sweep.base_path)
    lines = {key: value for key, value in dict(content).items() if key not in SWEEP_ONLY}
    fields = config_dict(load_config(str(found.sweep.base_path)))
    if (found.result or {}).get("lineage"):
        lines = {key: value for key, value in lines.items() if key not in POPULATION_ONLY}
        lines = apply_overrides(lines, lineage_fields((found.result or {})["lineage"], fields))
    elif not trial.attrs.get("own"):
        values = found.plan.space().decode(trial.latents)
        lines = apply_overrides(lines, overrides(values, fields))
    return lines, _provenance(found, number)


def lineage_fields(
    lineage: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of a lineage as config lines: stairs for numbers, the last value for the rest."""
    lines: dict[str, Any] = {}
    for name, last in lineage[-1]["params"].items():
        points: list[list[float]] = []
        for row in lineage:
            value = row["params"].get(name, last)
            if points and points[-1][1] == value:
                continue
            if points:
                points.append([max(row["env_steps"] - 1, points[-1][0] + 1), points[-1][1]])
            points.append([row["env_steps"], value])
        is_number = isinstance(last, int | float) and not isinstance(last, bool)
        if len(points) == 1 or not is_number or "." in name:
            lines |= overrides({name: last}, fields)
        else:
            lines[name] = {"schedule": "piecewise", "points": points}
    return lines


def _provenance(found: View, number: int) -> list[str]:
    plan = found.plan
    lines = [
        f"From sweep {found.sweep.id}, trial {number} of {len(found.trials)}: {plan.sampler} over "
        f"{', '.join(plan.params)} of {plan.config}, gymnasium-solver {__version__}.",
    ]
    rows = [row for row in (found.result or {}).get("final") or [] if row["trial"] == number]
    for row in rows:
        _, _, score, ends, _, env_steps = final_cells(row)
        lines.append(
            f"Final: test score {score}{f' (95 % interval {ends})' if ends else ''}, "
            f"{row['solved']} of {row['seeds']} seeds solved, {env_steps} env steps on average."
        )
    if fresh := (found.result or {}).get("fresh"):
        lines.append(
            f"The agent trained by the population scores {number_text(fresh['mean'])} over "
            f"{fresh['episodes']} fresh episodes. This schedule is not confirmed on fresh seeds."
        )
    elif not rows:
        lines.append("Not confirmed on fresh seeds.")
    return lines


def write_variant(
    target: str, found: View, lines: dict[str, Any], provenance: Sequence[str]
) -> tuple[Path, str]:
    """Add a variant to a file, or begin the file; what is in it stays as it is."""
    place, colon, name = target.rpartition(":")
    path = Path(place)
    if not colon or path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--write {target}: expected FILE.yaml:VARIANT")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ConfigError(f"--write {target}: {name!r} is not a variant's name, such as ppo_tuned")
    before = ""
    own = {key: value for key, value in lines.items() if key not in ("variant", "project_id")}
    if path.exists():
        file = read_config_file(path)
        if name in file.variants:
            raise ConfigError(f"{path} has a variant {name} already: choose another name")
        env_id = file.base.get("env_id", own["env_id"])
        if env_id != own["env_id"]:
            raise ConfigError(f"{path} is about {env_id}, the sweep about {own['env_id']}")
        own = {key: value for key, value in own.items() if file.base.get(key) != value
               or key == "algo_id"}  # fmt: skip
        before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n"
    shared = ""
    if not before:
        kept = [key for key in ("env_id", "spec") if key in own]
        shared = dump_yaml({key: own.pop(key) for key in kept}) + "\n"
    comment = "".join(f"# {line}\n" for line in provenance)
    block = f"{name}:\n{indent(dump_yaml(own), '  ')}"
    with writing("the config", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (before + shared + comment + block).encode())
    load_config(f"{path}:{name}")  # it can be trained
    return path, name
