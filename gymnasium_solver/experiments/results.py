"""Experiments from Python.

result = gs.experiment(["CartPole-v1:ppo", "CartPole-v1:dqn"], seeds=5, jobs=2)
result.scores                     # {"CartPole-v1:ppo": [500.0, ...], ...}
print(result)                     # the table of `gsolve compare`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.compare import Comparison, compare
from gymnasium_solver.experiments.comparison_report import markdown
from gymnasium_solver.experiments.experiment import FOLDER as EXPERIMENTS
from gymnasium_solver.experiments.experiment import Experiment, create, load
from gymnasium_solver.experiments.groups import Group, experiment_groups
from gymnasium_solver.experiments.pool import Backend, Task, check_over
from gymnasium_solver.experiments.stack import default_stacks
from gymnasium_solver.runs.run import Run, runs_root


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
    def groups(self) -> list[Group]:
        return experiment_groups(self.experiment)

    @property
    def scores(self) -> dict[str, list[float]]:
        """The held-out test score of each seed, by config."""
        return {group.label: group.scores for group in self.groups}

    def compare(self) -> Comparison:
        """Scores with intervals; a verdict where the seeds allow one. The first group is the
        baseline."""
        return compare(self.groups)

    def __str__(self) -> str:
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
    **fields: Any,
) -> ExperimentResult:
    """Train configs with several seeds each, in `jobs` processes at a time (default: one per CPU).

    `seeds`: a number, or the seeds themselves. `fields` change fields of every config. With `name`
    an experiment that was interrupted is continued by the same call. `progress=True` prints a line
    when a run starts or ends. `stack=True` trains the seeds of a config as one program, or as
    `jobs` programs (default: one per CPU with at least four seeds each). Raises RunError if a run
    fails; the others are finished first.
    """
    root = runs_root(runs_dir)
    each = [targets] if isinstance(targets, str | Config) else list(targets)
    configs = [_labelled(target, fields) for target in each]
    chosen = list(range(1, seeds + 1)) if isinstance(seeds, int) else [int(s) for s in seeds]
    path = None if name is None else root / EXPERIMENTS / name
    if path is not None and path.is_dir():
        made = load(path)
        wanted = [(label, seed) for label, _ in configs for seed in chosen]
        if [(m.group, m.seed) for m in made.members] != wanted:
            raise ConfigError(f"the experiment {name} exists with other configs or seeds")
    else:
        command = ["gymnasium_solver.experiment", *(label for label, _ in configs)]
        stacks = None
        if stack:
            stacks = jobs or default_stacks([config for _, config in configs], len(chosen))
        made = create(configs, chosen, root, name=name, command=command, stacks=stacks)
    on_change = _print if progress else None
    n_jobs = jobs or made.stacks or min(cpu_count(), len(made.members))
    tasks = made.run(n_jobs, backend=backend,
                     on_change=on_change)  # fmt: skip
    check_over(tasks)
    return ExperimentResult(made)


def _labelled(target: str | Config, fields: dict[str, Any]) -> tuple[str, Config]:
    from gymnasium_solver.training.prepare import load_config

    if "seed" in fields:
        raise ConfigError("seed: use seeds=[...] to choose the seeds of an experiment")
    if isinstance(target, Config):
        config = target.replace(**fields) if fields else target
        label = f"{config.env_id}:{config.variant or config.algo_id}"
    else:
        config = load_config(target, overrides=fields)
        label = target.rpartition("/")[2] if target.endswith((".yaml", ".yml")) else target
    if is_python_env(config.env_id):
        raise ConfigError(
            f"{config.env_id} was given as Python code, which other processes do not have. "
            "Register it in a module, and name that in `plugins`."
        )
    return label, config


def _print(task: Task) -> None:
    reason = f": {task.reason}" if task.reason else ""
    print(f"{task.label}: {task.state}{reason}", flush=True)
