"""Stacks of an experiment: seeds of one config that train together in one process.

    check_stackable(config)                      # ConfigError with the reason
    stack = Stack(folder, lanes, label)          # a task of the pool

The folder of a stack is `<experiment>/stacks/00/`. It has `lanes.json`, the command line of each
run, and the files of its process. The runs are ordinary ones: each can be resumed alone. Light to
import; the process itself is cli/stack_worker.py, and how it trains training/stacked.py.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium_solver.backends.local import LANES
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.pool import Task
from gymnasium_solver.runs.files import dump_json, read_json, write_atomic

ALGORITHMS = ("ppo", "a2c", "reinforce", "dqn")
# What the process of a stack imports (backends/nursery.py).
IMPORTS = (
    "gymnasium_solver.training.stacked",
    "gymnasium_solver.training.loop",
    "gymnasium_solver.cli.train",
    "gymnasium_solver.envs.engines.gymnasium",
    *(f"gymnasium_solver.algos.{name}" for name in ALGORITHMS),
)
# Fields that a stack does not support, with what they mean.
REFUSED = {
    "recurrent": "a recurrent network",
    "intrinsic": "an intrinsic reward",
    "sil": "self-imitation",
    "her": "hindsight replay",
    "eval_async": "a process of its own for evaluations",
    "collectors": "processes that act for one learner",
    "profile": "a profile of one run",
}


FEWEST_SEEDS = 4  # of a stack: fewer are not worth the start of another process
# On a GPU small networks wait for Python, so that smaller stacks pay; but each process takes half a
# gigabyte of the GPU's memory.
FEWEST_ON_GPU, MOST_STACKS_ON_GPU = 2, 5
CNN = "it learns from images, by a CNN that one seed alone keeps busy"


class Line(NamedTuple):
    """One run of a stack: its folder, and the words after `gsolve train`."""

    run: Path
    words: tuple[str, ...]


def default_stacks(configs: Sequence[Any], n_seeds: int) -> int:
    """Processes per config: one per CPU, as long as each has a few seeds, and on a GPU a few."""
    most, fewest = cpu_count(), FEWEST_SEEDS
    if any(str(config.device).startswith("cuda") for config in configs):
        most, fewest = min(most, MOST_STACKS_ON_GPU), FEWEST_ON_GPU
    return max(1, min(most, n_seeds // fewest))


def check_stackable(label: str, config: Any) -> None:
    """ConfigError if the seeds of a config cannot be trained as a stack."""
    problem = None
    if config.algo_id not in ALGORITHMS:
        problem = f"algo_id {config.algo_id}; {', '.join(ALGORITHMS)} can be stacked"
    for name, meaning in REFUSED.items():
        if problem is None and getattr(config, name, None):
            problem = f"{name}: {meaning}"
    # With `policy: auto` the observations decide, which are known to the process of the stack.
    if problem is None and "cnn" in (config.policy, str(config.model_id).partition("_")[0]):
        problem = CNN
    if problem is not None:
        raise not_stackable(label, problem)


def not_stackable(label: str, problem: str) -> ConfigError:
    return ConfigError(
        f"--stack: {label} cannot be stacked: {problem}. Use --jobs N, which trains each seed in a "
        "process of its own."
    )


def write_lanes(folder: Path, lanes: Sequence[Line]) -> None:
    content = [{"run": str(lane.run), "words": list(lane.words)} for lane in lanes]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / LANES, dump_json({"lanes": content}))


def read_lanes(folder: Path) -> list[Line]:
    content: dict[str, Any] = read_json(folder / LANES, "Delete the folder; the runs are intact.")
    return [Line(Path(row["run"]), tuple(row["words"])) for row in content["lanes"]]


def as_stack(folder: Path, tasks: Sequence[Task], label: str) -> "Stack":
    """The task that trains the runs of several tasks in one process."""
    lanes = tuple(Line(task.folder, (*task.words, *task.place)) for task in tasks)
    write_lanes(folder, lanes)
    return Stack(folder, (), label, lanes=lanes)


@dataclass
class Stack(Task):
    """Several trainings in one process, as a task of the pool. `folder` is the stack's own."""

    lanes: tuple[Line, ...] = ()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "gymnasium_solver.cli.stack_worker", str(self.folder)]

    @property
    def runs(self) -> list[Path]:
        return [lane.run for lane in self.lanes]
