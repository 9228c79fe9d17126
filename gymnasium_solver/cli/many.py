"""`gsolve train` with several runs: seeds, configs, ablations, side by side."""

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import FieldArgs, UsageError, load_target
from gymnasium_solver.errors import ConfigError

if TYPE_CHECKING:
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.experiments.experiment import Experiment
    from gymnasium_solver.experiments.pool import Backend

MANY_OPTIONS = ("seeds", "jobs", "stack", "ablations", "experiment", "backend", "detach")
NOT_TOGETHER = ("run_name", "run_dir", "if_exists", "epoch", "list_envs")
MOST_SEEDS = 10_000
MATPLOTLIB = "matplotlib.pyplot"


def is_many(args: FieldArgs) -> bool:
    """Whether this command line of `gsolve train` means an experiment."""
    targets = args.positionals
    return (
        any(args.has(name) for name in MANY_OPTIONS)
        or len(targets) > 1
        or any(is_pattern(target) for target in targets)
    )


def is_pattern(target: str) -> bool:
    return any(sign in target for sign in "*?,") and not os.path.exists(target)


def train_many(args: FieldArgs, command: Sequence[str], options: dict[str, str]) -> int:
    """Create an experiment, or take up the one of this name, and run it."""
    from gymnasium_solver.cli import placement

    if not args.has("stack") or placement.backend_of(args) != "local" or args.has("detach"):
        return _train_many(args, command, options)
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.experiments.stack import IMPORTS

    with Nursery(IMPORTS) as nursery:  # it imports while the configs are read here
        return _train_many(args, command, options, nursery)


def _train_many(
    args: FieldArgs,
    command: Sequence[str],
    options: dict[str, str],
    nursery: "Nursery | None" = None,
) -> int:
    from gymnasium_solver.cli import placement
    from gymnasium_solver.experiments import experiment as experiments
    from gymnasium_solver.experiments.stack import default_stacks
    from gymnasium_solver.runs.run import runs_root

    refused = [name for name in NOT_TOGETHER if args.has(name)]
    if refused or "seed" in args.fields:
        flag = f"--{(refused or ['seed'])[0].replace('_', '-')}"
        fix = "use --seeds" if not refused else "name the experiment with --experiment NAME"
        raise UsageError(f"{flag} is for a single run; {fix}")
    if args.has("render"):
        raise UsageError("--render shows a single run; gsolve play RUN --follow shows one of many")
    # Reported before anything is written.
    if placement.backend_of(args) == "local" and importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("no torch to train with here", name="torch")
    root = runs_root(args.last("runs_dir"))
    name = args.last("experiment")
    if name is not None and (path := root / experiments.FOLDER / name).is_dir():
        found = experiments.load(path)
        _check_same(found, command)
        return run_experiment(found, args, nursery)
    targets = expand([*args.positionals, *args.options.get("config_id", [])])
    if not targets:
        raise UsageError("no config given, for example: gsolve train CartPole-v1:ppo --seeds 5")
    configs = [(label_of(target), load_target(args, target, options)) for target in targets]
    seeds = parse_seeds(args.last("seeds"), configs[0][1].seed)
    if args.has("ablations"):
        configs = with_ablations(configs, Path(str(args.last("ablations"))), args, targets, options)
    stacks = None
    if args.has("stack"):
        placement.check_stack(args)
        stacks = default_stacks([config for _, config in configs], len(seeds))
        if args.last("jobs") is not None:
            stacks = parse_jobs(args.last("jobs"), len(seeds))
    made = experiments.create(configs, seeds, root, name=name, command=command, stacks=stacks)
    print(f"experiment {made.id}: {len(configs)} config{'s' * (len(configs) != 1)}, "
          f"{len(seeds)} seed{'s' * (len(seeds) != 1)}, {len(made.members)} runs")  # fmt: skip
    return run_experiment(made, args, nursery)


def _check_same(found: "Experiment", command: Sequence[str]) -> None:
    """The same command again continues an experiment; another one must have another name."""
    if _without_jobs(found.command) != _without_jobs(command):
        raise UsageError(
            f"the experiment {found.id} exists and was started by another command:\n"
            f"  {' '.join(found.command)}\n"
            f"Continue it with gsolve train --resume {found.id}, or choose another name"
        )


def _without_jobs(command: Sequence[str]) -> list[str]:
    """The words that decide what is run, not how."""
    text = "\0".join(command)
    text = re.sub(r"\0--(jobs|backend|resources|sbatch|track|runs[-_]dir)(=|\0)[^\0]*", "", text)
    return [w for w in text.split("\0") if w not in ("-q", "--quiet", "--detach", "--no-keys")]


def run_experiment(
    experiment: "Experiment", args: FieldArgs, nursery: "Nursery | None" = None
) -> int:
    """Run what is left of an experiment, show it, and print and write the summary."""
    return run_placed(experiment, args, lambda: summarise(experiment), nursery)


def run_placed(
    experiment: "Experiment",
    args: FieldArgs,
    at_end: Callable[[], None],
    nursery: "Nursery | None" = None,
) -> int:
    """Run what is left of an experiment where --backend says. `nursery`: forks the processes of
    stacks on this machine."""
    from gymnasium_solver.cli import placement

    name = placement.backend_of(args)
    experiment.check_trust(args.has("trust"))
    if name == "slurm":
        return placement.on_slurm(experiment, args, at_end)
    if name in ("dstack", "modal"):
        return placement.on_service(name, experiment, args)
    if args.has("detach"):
        return placement.detach(experiment, args)
    return run_tasks(experiment, args, at_end, nursery)


def run_tasks(
    experiment: "Experiment",
    args: FieldArgs,
    at_end: Callable[[], None],
    nursery: "Nursery | None" = None,
) -> int:
    """Run what is left of an experiment and show it. Exit code 1 if a run has failed."""
    from gymnasium_solver.backends.local import LocalBackend
    from gymnasium_solver.cli.many_table import ManyTable
    from gymnasium_solver.experiments.experiment import Progress
    from gymnasium_solver.experiments.pool import FAILED
    from gymnasium_solver.runs.files import locked

    experiment.check_trust(args.has("trust"))
    if args.has("track"):
        from gymnasium_solver.share.trackers.sink import read_names

        os.environ["GSOLVE_TRACK"] = ",".join(read_names(",".join(args.options["track"])))
    jobs = experiment.stacks if args.last("jobs") is None else None
    jobs = jobs or parse_jobs(args.last("jobs"), len(experiment.members))
    with locked(experiment.path):
        backend = None if nursery is None else LocalBackend(nursery)
        pool = experiment.pool(jobs, backend or _pool_backend(experiment, args))
        try:
            with ManyTable(Progress(experiment), args.has("quiet")) as table:
                pool.run(on_change=table.on_change, on_poll=_importing_meanwhile(table.on_poll))
        except KeyboardInterrupt:
            print(f"stopped; continue with gsolve train --resume {experiment.id}")
            raise
        at_end()
    failed = [task for task in pool.tasks if task.state == FAILED]
    for task in failed:
        print(f"{task.label} failed: {task.reason}")
    return 1 if failed else 0


def _importing_meanwhile(on_poll: Callable[[], None]) -> Callable[[], None]:
    """`on_poll`, which at its first call imports what the summary needs: the workers are busy."""
    waiting = [MATPLOTLIB, "gymnasium_solver.experiments.compare"]

    def poll() -> None:
        on_poll()
        while waiting:
            with suppress(ImportError):  # curves are drawn if it is installed
                importlib.import_module(waiting.pop())

    return poll


def _pool_backend(experiment: "Experiment", args: FieldArgs) -> "Backend | None":
    """Ray, if it was asked for; None: this machine."""
    from gymnasium_solver.cli.placement import pool_backend

    return pool_backend(args.last("backend") or "local", experiment.config_files(), args)


def summarise(experiment: "Experiment") -> None:
    """Print the comparison of the groups, and write it into the folder of the experiment."""
    from gymnasium_solver.cli.compare import print_comparison
    from gymnasium_solver.errors import GsolveError
    from gymnasium_solver.experiments.compare import compare
    from gymnasium_solver.experiments.comparison_report import write_summary
    from gymnasium_solver.experiments.groups import experiment_groups

    groups = [group for group in experiment_groups(experiment) if group.scores]
    if not groups:
        return
    comparison = compare(groups)
    print_comparison(comparison)
    try:
        written = write_summary(experiment.path, comparison, groups)
    except GsolveError as error:
        print(f"the summary was not written: {error}")
        return
    print(f"{written}  (gsolve compare {experiment.id} shows it again)")


def expand(targets: Sequence[str]) -> list[str]:
    """`CartPole-v1:ppo,dqn` and `CartPole-v1:*` name several configs."""
    from gymnasium_solver.config.find import find_configs

    found: list[str] = []
    for target in targets:
        head, colon, tail = target.rpartition(":")
        if not is_pattern(target):
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
    if text is None:
        return [1 if first is None else first]
    plain = text.replace(" ", "").replace("_", "")
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", plain):
        low, high = int(match[1]), int(match[2])
        seeds = list(range(low, min(high, low + MOST_SEEDS) + 1))
    elif plain.isdecimal():
        start = 1 if first is None else first
        seeds = list(range(start, start + min(int(plain), MOST_SEEDS + 1)))
    elif re.fullmatch(r"\d+(,\d+)*,?", plain):
        seeds = [int(part) for part in plain.split(",") if part]
    else:
        raise UsageError(f"--seeds {text}: expected a count (5), a list (1,2,7) or a range (3..7)")
    if not seeds or len(seeds) > MOST_SEEDS:
        raise UsageError(f"--seeds {text}: expected 1 to {MOST_SEEDS} seeds")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text}: a seed is given twice")
    return seeds


def parse_jobs(text: str | None, n_runs: int) -> int:
    """How many runs at a time; by default one per CPU."""
    from gymnasium_solver.config.cpus import cpu_count

    if text is None:
        return max(1, min(n_runs, cpu_count()))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--jobs {text}: expected a whole number >= 1")
    return int(text)


def with_ablations(
    configs: "list[tuple[str, Config]]",
    path: Path,
    args: FieldArgs,
    targets: Sequence[str],
    options: dict[str, str],
) -> "list[tuple[str, Config]]":
    """Each config as it is, and once with each overlay of the file."""
    from gymnasium_solver.cli.flags import changes_of
    from gymnasium_solver.experiments.benchmark import read_ablations
    from gymnasium_solver.training.prepare import load_config

    overrides, fill = changes_of(args)
    trust = args.has("trust")
    result: list[tuple[str, Any]] = []
    for (label, config), target in zip(configs, targets, strict=True):
        result.append((label, config))
        for name, overlay in read_ablations(path).items():
            try:
                changed = load_config(target, overrides={**overrides, **overlay}, fill=fill,
                                      trust=trust)  # fmt: skip
            except ConfigError as error:
                raise ConfigError(f"{path}: {name}: {error}") from None
            result.append((f"{label} {name}", changed))
    return result
