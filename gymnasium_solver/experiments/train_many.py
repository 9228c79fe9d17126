"""Several configs with several seeds each: what words of the command line mean, and the Python API.

result = gs.experiment(["CartPole-v1:ppo", "CartPole-v1:dqn"], seeds=5, jobs=2)
result.scores                        # {"CartPole-v1:ppo": [500.0, ...], ...}
print(result)                        # the table of `gsolve compare`
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.config.env_ids import is_python_env, split_target
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.experiment import FOLDER as EXPERIMENTS
from gymnasium_solver.experiments.experiment import Experiment, create, default_stacks, load
from gymnasium_solver.experiments.pool import Backend, Task, check_over
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.training.activity import sigterm_exits

if TYPE_CHECKING:
    from gymnasium_solver.experiments.compare import Comparison
    from gymnasium_solver.experiments.groups import Group

MOST_SEEDS = 10_000


def expand(targets: Sequence[str]) -> list[str]:
    """`CartPole-v1:ppo,dqn` and `CartPole-v1:*` name several configs."""
    found: list[str] = []
    for target in targets:
        head, tail = split_target(target)
        if not set("*?,") & set(target) or os.path.exists(target):
            found.append(target)
        elif tail is not None and "," in tail:
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


@dataclass(frozen=True)
class ExperimentResult:
    """An experiment that has been run."""

    experiment: Experiment

    @property
    def path(self) -> Path:
        return self.experiment.path

    @property
    def runs(self) -> list[Run]:
        return [Run(path) for path in self.experiment.folders()]

    @property
    def groups(self) -> "list[Group]":
        from gymnasium_solver.experiments.groups import experiment_groups

        return experiment_groups(self.experiment)

    @property
    def scores(self) -> dict[str, list[float]]:
        """The held-out test score of each seed, by config."""
        return {group.label: group.scores for group in self.groups}

    def compare(self) -> "Comparison":
        """Scores with intervals; a verdict where the seeds allow one. The first group is the
        baseline."""
        from gymnasium_solver.experiments.compare import compare

        return compare(self.groups)

    def __str__(self) -> str:
        from gymnasium_solver.experiments.comparison_report import markdown

        return markdown(self.compare())


def experiment(
    targets: str | Config | Sequence[str | Config],
    seeds: int | Sequence[int] = 5,
    *,
    jobs: int | None = None,
    name: str | None = None,
    runs_dir: str | Path | None = None,
    progress: bool = False,
    backend: Backend | None = None,
    stack: bool = False,
    trust: bool = False,
    **fields: Any,
) -> ExperimentResult:
    """Train configs with several seeds each, in `jobs` processes at a time (default: one per CPU).

    `seeds`: a number, or the seeds themselves. `fields` change fields of every config. With `name`
    an experiment that was interrupted is continued by the same call. `progress=True` prints a line
    when a run starts or ends. `stack=True` trains the seeds of a config as one program, or as
    `jobs` programs (default: one per CPU with at least four seeds each). Raises RunError if a run
    fails; the others are finished first. SIGTERM saves and stops all runs and ends the program with
    the exit code 75. `trust`: also import code that the config of a run made elsewhere names."""
    root = runs_root(runs_dir)
    each = [targets] if isinstance(targets, str | Config) else list(targets)
    configs = [_labelled(target, fields, trust) for target in each]
    chosen = list(range(1, seeds + 1)) if isinstance(seeds, int) else [int(s) for s in seeds]
    path = None if name is None else root / EXPERIMENTS / name
    if path is not None and path.is_dir():
        made = load(path)
        wanted = [(label, seed) for label, _ in configs for seed in chosen]
        if [(m.group, m.seed) for m in made.members] != wanted:
            raise ConfigError(f"the experiment {name} exists with other configs or seeds")
    else:
        command = ["gymnasium_solver.experiment", *(label for label, _ in configs)]
        n_stacks = jobs or default_stacks([config for _, config in configs], len(chosen))
        stacks = n_stacks if stack else None
        made = create(configs, chosen, root, name=name, command=command, stacks=stacks)

    def tell(task: Task) -> None:
        print(f"{task.label}: {task.state}{f': {task.reason}' if task.reason else ''}", flush=True)

    n_jobs = jobs or made.stacks or min(cpu_count(), len(made.members))
    with sigterm_exits():
        on_change = tell if progress else None
        tasks = made.run(n_jobs, backend=backend, on_change=on_change, trust=trust)
    check_over(tasks)
    return ExperimentResult(made)


def _labelled(target: str | Config, fields: dict[str, Any], trust: bool) -> tuple[str, Config]:
    from gymnasium_solver.training.prepare import load_config

    if "seed" in fields:
        raise ConfigError("seed: use seeds=[...] to choose the seeds of an experiment")
    if isinstance(target, Config):
        config = target.replace(**fields) if fields else target
        label = f"{config.env_id}:{config.variant or config.algo_id}"
    else:
        config = load_config(target, overrides=fields, trust=trust, chooses=True)
        label = label_of(target)
    if is_python_env(config.env_id):
        raise ConfigError(
            f"{config.env_id} was given as Python code, which other processes do not have. "
            "Register it in a module, and name that in `plugins`."
        )
    return label, config
