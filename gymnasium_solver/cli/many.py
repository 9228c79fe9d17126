"""`gsolve train` with several runs: seeds, configs, ablations, side by side here or elsewhere."""

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.field_flags import as_flag, changes_of, load_target
from gymnasium_solver.cli.flags import Args, UsageError, root_of
from gymnasium_solver.errors import GsolveError

if TYPE_CHECKING:
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.backends.resources import Resources
    from gymnasium_solver.experiments.experiment import Experiment
    from gymnasium_solver.experiments.pool import Backend

MANY_FLAGS = ("seeds", "jobs", "stack", "ablations", "experiment", "backend", "detach")
NOT_TOGETHER = ("run_name", "run_dir", "if_exists", "epoch", "list_envs")
HOW = ("jobs", "backend", "resources", "sbatch", "track", "runs[-_]dir")  # not what is run
FOLLOW_S = 3.0
MATPLOTLIB = "matplotlib.pyplot"


def is_many(args: Args) -> bool:
    """Whether this command line of `gsolve train` means an experiment."""
    is_asked = any(getattr(args, name) not in (None, False) for name in MANY_FLAGS)
    has_pattern = any(set("*?,") & set(word) and not os.path.exists(word) for word in args.words)
    return is_asked or len(args.words) > 1 or has_pattern


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
    if not args.stack or backend_of(args) != "local" or args.detach:
        return _train_many(args)
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.experiments.experiment import IMPORTS

    with Nursery(IMPORTS) as nursery:  # it imports while the configs are read here
        return _train_many(args, nursery)


def _train_many(args: Args, nursery: "Nursery | None" = None) -> int:
    from gymnasium_solver.experiments import experiment as experiments
    from gymnasium_solver.experiments.benchmark import ablated
    from gymnasium_solver.experiments.experiment import default_stacks
    from gymnasium_solver.experiments.train_many import expand, label_of, parse_seeds

    _check_flags(args)
    root, name = root_of(args), args.experiment
    if name is not None and (path := root / experiments.FOLDER / name).is_dir():
        found = experiments.load(path)
        _check_same(found, args.command)
        return run_experiment(found, args, nursery)
    targets = expand([*args.words, *args.config_id])
    if not targets:
        raise UsageError("no config given, for example: gsolve train CartPole-v1:ppo --seeds 5")
    configs = []
    for target in targets:
        configs.append((label_of(target), load_target(args, target)))
        if args.ablations is not None:
            path, changes = Path(args.ablations), changes_of(args)
            configs += ablated(label_of(target), target, path, *changes, args.trust)
    seeds = parse_seeds(args.seeds, configs[0][1].seed)
    stacks = None
    if args.stack:
        if (backend := backend_of(args)) != "local":
            raise UsageError(f"--stack trains in one process here: remove --backend {backend}")
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
    if backend_of(args) == "local" and importlib.util.find_spec("torch") is None:
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
    name = backend_of(args)
    experiment.check_trust(args.trust)
    if name == "slurm":
        return _on_slurm(experiment, args, at_end)
    if name in ("dstack", "modal"):
        return _on_service(name, experiment, args)
    if args.detach:
        return _detach(experiment, args)
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

    os.environ |= _tracked(args)
    at_once = args.jobs or experiment.stacks or min(len(experiment.members), cpu_count())
    with locked(experiment.path):
        backend = pool_backend(args, experiment.config_files())
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


# --- elsewhere


def backend_of(args: Args) -> str:
    from gymnasium_solver.backends.resources import check_backend

    return check_backend(args.backend, sbatch=args.sbatch, resources=args.resources)


def _detach(experiment: "Experiment", args: Args) -> int:
    """Start a coordinator in the background, which runs the experiment."""
    from gymnasium_solver.backends import local

    words = ["train", "--resume", str(experiment.path), "--runs-dir", str(experiment.root)]
    given = {"jobs": args.jobs, "backend": args.backend, "resources": args.resources}
    for name, value in (given | {"track": ",".join(args.track) or None}).items():
        words += [] if value is None else [f"--{name}", str(value)]
    job = local.start(local.gsolve(*words, *["--trust"] * args.trust), experiment.path)
    print(
        f"{experiment.id} runs in the background (process {job.pid})\n"
        f"  gsolve experiments {experiment.id} --watch\n  gsolve jobs logs {experiment.id}\n"
        f"  gsolve jobs cancel {experiment.id}"
    )
    return 0


def _tracked(args: Args) -> dict[str, str]:
    """The environment variable that makes runs start their trackers."""
    from gymnasium_solver.share.trackers.sink import read_names

    return {"GSOLVE_TRACK": ",".join(read_names(",".join(args.track)))} if args.track else {}


def needs_of(args: Args, configs: Sequence[Path]) -> "Resources":
    from gymnasium_solver.backends import resources

    needs, note = resources.needs_of(configs, args.resources)
    print(note, file=sys.stderr if getattr(args, "json", False) else None)
    return needs


def pool_backend(args: Args, configs: Sequence[Path]) -> "Backend | None":
    """What a coordinator here starts runs of these configs on; None: this machine. The runs are not
    all known at the start, so that it must see each of their folders."""
    if (name := backend_of(args)) == "local":
        return None
    needs = needs_of(args, configs)
    if name == "slurm":
        from gymnasium_solver.backends.slurm import SlurmBackend, sbatch_options

        return SlurmBackend(needs, sbatch_options(args.sbatch))
    from gymnasium_solver.backends.ray_tasks import RayBackend

    address = os.environ.get("RAY_ADDRESS")
    return RayBackend(address, cpus=needs.cpus, gpus=needs.gpus, memory_gb=needs.memory_gb)


def _on_slurm(experiment: "Experiment", args: Args, at_end: Callable[[], None]) -> int:
    """Submit a job array, and follow it unless --detach."""
    from gymnasium_solver.backends import slurm

    script = slurm.write_script(
        experiment.path / "slurm",
        [experiment.task(member).argv for member in experiment.members],
        needs_of(args, experiment.config_files()),
        name=experiment.id,
        jobs=args.jobs,
        env=_tracked(args),
        options=slurm.sbatch_options(args.sbatch),
    )
    job_id = slurm.submit(script)
    print(f"submitted {script} as Slurm job {job_id}")
    return 0 if args.detach else _follow(experiment, args, job_id, at_end)


def _follow(experiment: "Experiment", args: Args, job_id: str, at_end: Callable[[], None]) -> int:
    """Show the runs of an experiment that trains elsewhere until its job is over."""
    from gymnasium_solver.backends import slurm
    from gymnasium_solver.cli.many_table import ManyTable
    from gymnasium_solver.experiments.experiment import Progress, counts

    progress = Progress(experiment)
    try:
        with ManyTable(progress, args.quiet) as table:
            while slurm.is_active(job_id):
                table.on_poll()
                time.sleep(FOLLOW_S)
    except KeyboardInterrupt:
        print(f"the job continues; gsolve jobs cancel {experiment.id} ends it")
        raise
    rows = progress.rows()
    print(counts(rows))
    at_end()
    return 0 if all(row.status == "finished" for row in rows) else 1


def _on_service(backend: str, experiment: "Experiment", args: Args) -> int:
    """Write what dstack or Modal needs, and hand it over if its command is installed."""
    from gymnasium_solver.backends import cloud
    from gymnasium_solver.experiments.experiment import CONFIGS

    runs = [
        cloud.CloudRun(m.run, (experiment.path / CONFIGS / m.config).read_text(), m.seed)
        for m in experiment.members
    ]
    needs = needs_of(args, experiment.config_files())
    made = cloud.write(backend, experiment.path / backend, experiment.id, runs, needs)
    print(f"wrote {made}")
    if shutil.which(backend) is None:
        file = made / "RUN.dstack.yml" if made.is_dir() else made
        command = shlex.join(cloud.command(backend, file))
        print(f"{backend} is not installed here. Start it with:\n  {command}")
        return 0
    return cloud.submit(backend, made)
