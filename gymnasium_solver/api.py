"""Training from Python: `gymnasium_solver.train`, the same call as `train` on the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config


def train(
    target: str | Config,
    *,
    runs_dir: str | Path | None = None,
    observers: Sequence[Observer] = (),
    fill: Mapping[str, str] | None = None,
    **fields: Any,
) -> Run:
    """Train `target` ("CartPole-v1:ppo", a file, or a Config) and return its run folder.

    `fields` override fields of the config; `fill` gives the values of its ${placeholders}. Prints
    nothing unless one of the `observers` does. Raises DivergedError if a value in training is not
    finite.
    """
    if isinstance(target, Config):
        config = target.replace(**fields) if fields else target
    else:
        config = load_config(target, overrides=fields, fill=fill)
    return loop.train(
        config,
        runs_root=runs_root(runs_dir),
        command=["gymnasium_solver.train", config.env_id],
        observers=observers,
    )
