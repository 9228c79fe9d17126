"""`gsolve train` with several runs: seeds, configs, ablations, side by side."""

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli import placement
from gymnasium_solver.cli.field_flags import as_flag, changes_of, load_target
from gymnasium_solver.cli.flags import Args, UsageError, root_of
from gymnasium_solver.errors import ConfigError, GsolveError

if TYPE_CHECKING:
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.experiments.experiment import Experiment

MANY_FLAGS = ("seeds", "jobs", "stack", "ablations", "experiment", "backend", "detach")
NOT_TOGETHER = ("run_name", "run_dir", "if_exists", "epoch", "list_envs")
HOW = ("jobs", "backend", "resources", "sbatch", "track", "runs[-_]dir")  # not what is run
MOST_SEEDS = 10_000
MATPLOTLIB = "matplotlib.pyplot"


def is_many(args: Args) -> bool:
    """Whether this command line of `gsolve train` means an experiment."""
    is_asked = any(getattr(args, name) not in (None, False) for name in MANY_FLAGS)
    return is_asked or len(args.words) > 1 or any(is_pattern(target) for target in args.words)


def is_pattern(target: str) -> bool:
    return any(sign in target for sign in "*?,") and not os.path.exists(target)


def find_experiment(args: Args) -> "Experiment | None":
    """The experiment that --resume names; None if it names a run."""
    from gymnasium_solver.experiments.experiment import FOLDER, find, load
    from gymnasium_solver.runs.run import is_run

    root, ref = root_of(args), args.resume
    is_name = not ref.startswith("@") and not is_run(root / ref) and (root / FOLDER).is_dir()
    found = find(ref, root) if is_name or "/" in ref else None
    if found is None:
        return None
    refused = [f"--{name}" for name in ("seeds", "ablations", "experiment") if getattr(args, name)]
    for word in [*args.spelled.values(), *args.words, *refused]:
        raise UsageError(f"{word}: an experiment is continued as it was started; remove it")
    return load(found)


def train_many(args: Args) -> int:
    """Create an experiment, or take up the one of this name, and run it."""
    if not args.stack or placement.backend_of(args) != "local" or args.detach:
        return _train_many(args)
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.experiments.stack import IMPORTS

    with Nursery(IMPORTS) as nursery:  # it imports while the configs are read here
        return _train_many(args, nursery)


def _train_many(args: Args, nursery: "Nursery | None" = None) -> int:
    from gymnasium_solver.experiments import experiment as experiments
    from gymnasium_solver.experiments.stack import default_stacks

    _check_flags(args)
    root, name = root_of(args), args.experiment
    if name is not None and (path := root / experiments.FOLDER / name).is_dir():
        found = experiments.load(path)
        _check_same(found, args.command)
        return run_experiment(found, args, nursery)
    targets = expand([*args.words, *args.config_id])
    if not targets:
        raise UsageError("no config given, for example: gsolve train CartPole-v1:ppo --seeds 5")
    configs = [(label_of(target), load_target(args, target)) for target in targets]
    seeds = parse_seeds(args.seeds, configs[0][1].seed)
    if args.ablations is not None:
        configs = _with_ablations(configs, args, targets)
    stacks = None
    if args.stack:
        placement.check_stack(args)
        stacks = args.jobs or default_stacks([config for _, config in configs], len(seeds))
    made = experiments.create(configs, seeds, root, name=name, command=args.command, stacks=stacks)
    print(
        f"experiment {made.id}: {len(configs)} config{'s' * (len(configs) != 1)}, "
        f"{len(seeds)} seed{'s' * (len(seeds) != 1)}, {len(made.members)} runs"
    )
    return run_experiment(made, args, nursery)


def _check_flags(args: Args) -> None:
    """UsageError before anything is written."""
    if refused := [name for name in NOT_TOGETHER if getattr(args, name) is not None]:
        flag = as_flag(refused[0])
        raise UsageError(f"{flag} is for a single run; name the experiment with --experiment NAME")
    if "seed" in args.fields:
        raise UsageError("--seed is for a single run; use --seeds")
    if args.render:
        raise UsageError("--render shows a single run; gsolve play RUN --follow shows one of many")
    if placement.backend_of(args) == "local" and importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("no torch to train with here", name="torch")


def _check_same(found: "Experiment", command: Sequence[str]) -> None:
    """The same command again continues an experiment; another one must have another name."""
    if _what_is_run(found.command) != _what_is_run(command):
        raise UsageError(
            f"the experiment {found.id} exists and was started by another command:\n"
            f"  {' '.join(found.command)}\n"
            f"Continue it with gsolve train --resume {found.id}, or choose another name"
        )


def _what_is_run(command: Sequence[str]) -> list[str]:
    """The words of a command that decide what is run, not how."""
    text = re.sub(rf"\0--({'|'.join(HOW)})(=|\0)[^\0]*", "", "\0".join(command))
    return [w for w in text.split("\0") if w not in ("-q", "--quiet", "--detach", "--no-keys")]


def run_experiment(experiment: "Experiment", args: Args, nursery: "Nursery | None" = None) -> int:
    """Run what is left of an experiment, show it, and print and write the summary."""
    return run_placed(experiment, args, lambda: summarise(experiment), nursery)


def run_placed(
    experiment: "Experiment",
    args: Args,
    at_end: Callable[[], None],
    nursery: "Nursery | None" = None,
) -> int:
    """Run what is left of an experiment where --backend says. `nursery`: forks the processes of
    stacks on this machine."""
    name = placement.backend_of(args)
    experiment.check_trust(args.trust)
    if name == "slurm":
        return placement.on_slurm(experiment, args, at_end)
    if name in ("dstack", "modal"):
        return placement.on_service(name, experiment, args)
    if args.detach:
        return placement.detach(experiment, args)
    return _run_tasks(experiment, args, at_end, nursery)


def _run_tasks(
    experiment: "Experiment", args: Args, at_end: Callable[[], None], nursery: "Nursery | None"
) -> int:
    """Run what is left of an experiment and show it. Exit code 1 if a run has failed."""
    from gymnasium_solver.backends.local import LocalBackend
    from gymnasium_solver.cli.many_table import ManyTable
    from gymnasium_solver.config.cpus import cpu_count
    from gymnasium_solver.experiments.experiment import Progress
    from gymnasium_solver.experiments.pool import FAILED
    from gymnasium_solver.runs.files import locked

    os.environ |= placement.tracked(args)
    at_once = args.jobs or experiment.stacks or min(len(experiment.members), cpu_count())
    with locked(experiment.path):
        configs = experiment.config_files()
        backend = placement.pool_backend(args.backend or "local", configs, args)
        if nursery is not None:
            backend = LocalBackend(nursery)
        pool = experiment.pool(max(1, at_once), backend)
        try:
            with ManyTable(Progress(experiment), args.quiet) as table:
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


def summarise(experiment: "Experiment") -> None:
    """Print the comparison of the groups, and write it into the folder of the experiment."""
    from gymnasium_solver.cli.compare import print_comparison
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


# --- what is trained


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
        raise UsageError(f"--seeds {text}: expected a count (5), a list (1,2,7) or a range (3..7)")
    if not seeds or len(seeds) > MOST_SEEDS:
        raise UsageError(f"--seeds {text}: expected 1 to {MOST_SEEDS} seeds")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text}: a seed is given twice")
    return seeds


def _with_ablations(
    configs: "list[tuple[str, Config]]", args: Args, targets: Sequence[str]
) -> "list[tuple[str, Config]]":
    """Each config as it is, and once with each overlay of the file."""
    from gymnasium_solver.experiments.benchmark import read_ablations
    from gymnasium_solver.training.prepare import load_config

    overrides, fill = changes_of(args)
    overlays = read_ablations(Path(args.ablations))
    result = []
    for (label, config), target in zip(configs, targets, strict=True):
        result.append((label, config))
        for name, overlay in overlays.items():
            fields = {**overrides, **overlay}
            try:
                changed = load_config(target, overrides=fields, fill=fill, trust=args.trust)
            except ConfigError as error:
                raise ConfigError(f"{args.ablations}: {name}: {error}") from None
            result.append((f"{label} {name}", changed))
    return result
