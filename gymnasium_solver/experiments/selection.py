"""What is trained together: configs named by patterns, seeds, and ablations of each config.

expand(["CartPole-v1:ppo,dqn"])      # ["CartPole-v1:ppo", "CartPole-v1:dqn"]
parse_seeds("3..7", None)            # [3, 4, 5, 6, 7]
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.find import find_configs
from gymnasium_solver.errors import ConfigError

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

MOST_SEEDS = 10_000


def expand(targets: Sequence[str]) -> list[str]:
    """`CartPole-v1:ppo,dqn` and `CartPole-v1:*` name several configs."""
    found: list[str] = []
    for target in targets:
        head, colon, tail = target.rpartition(":")
        if not set("*?,") & set(target) or os.path.exists(target):
            found.append(target)
        elif colon and "," in tail:
            found += expand([f"{head}:{part.strip()}" for part in tail.split(",") if part.strip()])
        else:
            names = [entry.name for entry in find_configs(target)]
            if not names:
                raise ConfigError(f"no config matches {target!r}; gsolve list shows all")
            found += names
    return list(dict.fromkeys(found))


def label_of(target: str) -> str:
    """A file is labelled by its name, without folders."""
    return target.rpartition("/")[2] if target.endswith((".yaml", ".yml", ".json")) else target


def parse_seeds(text: str | None, first: int | None) -> list[int]:
    """`5`: five seeds from the config's own on (or 1); `1,2,7`: these; `3..7`: a range."""
    start = 1 if first is None else first
    if text is None:
        return [start]
    plain = text.replace(" ", "").replace("_", "")
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", plain):
        low, high = int(match[1]), int(match[2])
        seeds = list(range(low, min(high, low + MOST_SEEDS) + 1))
    elif plain.isdecimal():
        seeds = list(range(start, start + min(int(plain), MOST_SEEDS + 1)))
    elif re.fullmatch(r"\d+(,\d+)*,?", plain):
        seeds = [int(part) for part in plain.split(",") if part]
    else:
        raise ConfigError(f"--seeds {text}: expected a count (5), a list (1,2,7) or a range (3..7)")
    if not seeds or len(seeds) > MOST_SEEDS:
        raise ConfigError(f"--seeds {text}: expected 1 to {MOST_SEEDS} seeds")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds {text}: a seed is given twice")
    return seeds


def ablated(
    label: str,
    target: str,
    path: Path,
    overrides: Mapping[str, Any],
    fill: Mapping[str, str],
    trust: bool,
) -> "list[tuple[str, Config]]":
    """A config once with each overlay of an ablation file, with its label."""
    from gymnasium_solver.experiments.benchmark import read_ablations
    from gymnasium_solver.training.prepare import load_config

    found = []
    for name, overlay in read_ablations(path).items():
        fields = {**overrides, **overlay}
        try:
            found.append(
                (f"{label} {name}", load_config(target, overrides=fields, fill=fill, trust=trust))
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {name}: {error}") from None
    return found
