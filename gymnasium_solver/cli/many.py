"""`gsolve train` with several runs: seeds, configs, ablations, side by side here or elsewhere; and
the table of the runs of an experiment."""

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gymnasium_solver.backends import cloud, local, resources, slurm
from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, as_flag
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.experiments import experiment as folders
from gymnasium_solver.experiments.experiment import OVER, Experiment, Progress, Row, counts
from gymnasium_solver.experiments.pool import FAILED, Backend, Task
from gymnasium_solver.runs.files import locked
from gymnasium_solver.runs.run import is_run
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from gymnasium_solver.backends.nursery import Nursery
    from gymnasium_solver.backends.resources import Resources

NOT_TOGETHER = ("run_name", "run_dir", "if_exists", "epoch", "list_envs")
HOW = ("jobs", "backend", "resources", "sbatch", "track", "runs[-_]dir")  # not what is run
FOLLOW_S = 3.0
FOR_SUMMARY = ("gymnasium_solver.experiments.compare", "matplotlib.pyplot")
PLAIN_S, LOOK_S = 60.0, 1.0  # without a terminal: at least a line a minute; between looks
BAR = 12


def find_experiment(args: Args) -> Experiment | None:
    """The experiment that --resume names; None if it names a run."""
    from gymnasium_solver.experiments.auto import is_solve

    root, ref = args.root(), args.resume
    is_name = not (ref.startswith("@") or is_run(root / ref)) and (root / folders.FOLDER).is_dir()
    found = folders.find(ref, root) if is_name or "/" in ref else None
    if found is None:
        return None
    if is_solve(found):
        raise UsageError(f"{found.name} was started by gsolve solve: gsolve solve --resume {ref}")
    refused = [f"--{name}" for name in ("seeds", "ablations", "experiment") if getattr(args, name)]
    for word in [*args.spelled.values(), *args.words, *refused]:
        raise UsageError(f"{word}: an experiment is continued as it was started; remove it")
    return folders.load(found)


def train_many(args: Args) -> int:
    """Create an experiment, or take up the one of this name, and run it."""
    from gymnasium_solver.backends.nursery import Nursery

    check_flags(args)
    is_stack_here = args.stack and backend_of(args) == "local" and not args.detach
    # It imports while the configs are read here.
    nursery: Any = Nursery(folders.IMPORTS) if is_stack_here else nullcontext()
    with nursery as forks:
        folder = args.root() / folders.FOLDER / (args.experiment or "")
        if args.experiment is None or not folder.is_dir():
            return run_experiment(new_experiment(args), args, forks)
        found = folders.load(folder)
        if _what_is_run(found.command) != _what_is_run(args.command):
            raise UsageError(
                f"the experiment {found.id} exists and was started by another command:\n"
                f"  {' '.join(found.command)}\n"
                f"Continue it with gsolve train --resume {found.id}, or choose another name"
            )
        return run_experiment(found, args, forks)


def check_flags(args: Args) -> None:
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


def _what_is_run(command: Sequence[str]) -> list[str]:
    """The words of a command that decide what is run, not how."""
    text = re.sub(rf"\0--({'|'.join(HOW)})(=|\0)[^\0]*", "", "\0".join(command))
    return [w for w in text.split("\0") if w not in ("-q", "--quiet", "--detach", "--no-keys")]


def new_experiment(args: Args) -> Experiment:
    from gymnasium_solver.experiments.benchmark import ablated
    from gymnasium_solver.experiments.train_many import expand, label_of, parse_seeds

    targets = expand([*args.words, *args.config_id])
    if not targets:
        raise UsageError("no config given, for example: gsolve train CartPole-v1:ppo --seeds 5")
    configs = []
    for target in targets:
        configs.append((label_of(target), args.load_config(target, chooses=True)))
        if args.ablations is not None:
            path, changes = Path(args.ablations), args.changes()
            configs += ablated(label_of(target), target, path, *changes, args.trust)
    seeds = parse_seeds(args.seeds, configs[0][1].seed)
    stacks = None
    if args.stack:
        if (backend := backend_of(args)) != "local":
            raise UsageError(f"--stack trains in one process here: remove --backend {backend}")
        stacks = args.jobs or folders.default_stacks([config for _, config in configs], len(seeds))
    root, name = args.root(), args.experiment
    made = folders.create(configs, seeds, root, name=name, command=args.command, stacks=stacks)
    print(
        f"experiment {made.id}: {len(configs)} config{'s' * (len(configs) != 1)}, "
        f"{len(seeds)} seed{'s' * (len(seeds) != 1)}, {len(made.members)} runs"
    )
    return made


def run_experiment(experiment: Experiment, args: Args, nursery: "Nursery | None" = None) -> int:
    """Run what is left of an experiment, show it, and print and write the comparison of its
    groups."""

    def summarise() -> None:
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
            page, *_ = write_summary(experiment, comparison, groups)
            print(f"{page}  (gsolve compare {experiment.id} shows it again)")
        except GsolveError as error:
            print(f"the summary was not written: {error}")

    return run_placed(experiment, args, summarise, nursery)


def run_placed(
    experiment: Experiment,
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
    experiment: Experiment, args: Args, at_end: Callable[[], None], nursery: "Nursery | None"
) -> int:
    """Run what is left of an experiment and show it. Exit code 1 if a run has failed."""

    os.environ |= _tracked(args)
    at_once = args.jobs or experiment.stacks or min(len(experiment.members), cpu_count())
    table, waiting = ManyTable(Progress(experiment), args.quiet), list(FOR_SUMMARY)

    def on_poll() -> None:
        table.on_poll()
        while waiting:  # the workers are busy now
            with suppress(ImportError):  # curves are drawn if it is installed
                importlib.import_module(waiting.pop())

    with locked(experiment.path):
        backend = pool_backend(args, experiment.config_files())
        if nursery:
            backend = local.LocalBackend(nursery, resources.local_gpus(args.resources))
        pool = experiment.pool(max(1, at_once), backend)
        try:
            with table:
                pool.run(on_change=table.on_change, on_poll=on_poll)
        except KeyboardInterrupt:
            print(f"stopped; continue with gsolve train --resume {experiment.id}")
            raise
        at_end()
    failed = [task for task in pool.tasks if task.state == FAILED]
    for task in failed:
        print(f"{task.label} failed: {task.reason}")
    return 1 if failed else 0


# --- elsewhere


def backend_of(args: Args) -> str:
    return resources.check_backend(args.backend, sbatch=args.sbatch, resources=args.resources)


def _detach(experiment: Experiment, args: Args) -> int:
    """Start a coordinator in the background, which runs the experiment."""
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
    from gymnasium_solver.share.trackers.follow import read_names

    return {"GSOLVE_TRACK": ",".join(read_names(",".join(args.track)))} if args.track else {}


def needs_of(args: Args, configs: Sequence[Path]) -> "Resources":
    needs, note = resources.needs_of(configs, args.resources)
    print(note, file=sys.stderr if getattr(args, "json", False) else None)
    return needs


def pool_backend(args: Args, configs: Sequence[Path]) -> Backend:
    """What a coordinator here starts runs of these configs on. The runs are not all known at the
    start, so that it must see each of their folders."""
    if (name := backend_of(args)) == "local":
        return local.LocalBackend(gpus=resources.local_gpus(args.resources))
    needs = needs_of(args, configs)
    if name == "slurm":
        return slurm.SlurmBackend(needs, slurm.sbatch_options(args.sbatch))
    from gymnasium_solver.backends.ray_tasks import RayBackend

    address = os.environ.get("RAY_ADDRESS")
    return RayBackend(address, cpus=needs.cpus, gpus=needs.gpus, memory_gb=needs.memory_gb)


def _on_slurm(experiment: Experiment, args: Args, at_end: Callable[[], None]) -> int:
    """Submit a job array, and show its runs until it is over, unless --detach."""
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
    if args.detach:
        return 0
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


def _on_service(backend: str, experiment: Experiment, args: Args) -> int:
    """Write what dstack or Modal needs, and hand it over if its command is installed."""
    runs = [
        cloud.CloudRun(m.run, (experiment.path / folders.CONFIGS / m.config).read_text(), m.seed)
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


# --- the runs of an experiment


class ManyTable(out.LiveView):
    """Shows an experiment while it runs."""

    def __init__(self, progress: Progress, quiet: bool = False) -> None:
        super().__init__(out.make_console(), quiet)
        self.progress = progress
        self._told: set[str] = set()
        self._said_s = self._looked_s = 0.0

    def on_change(self, task: Task) -> None:
        """A task has started, ended, or is to be resumed."""
        if self.is_shown or self.quiet:
            return
        if task.is_over:
            self._tell_ends_of_stacks()
        row = next((r for r in self.progress.rows() if r.member.run == task.folder.name), None)
        words = {"waiting": "has ended early and is resumed", "running": "started"}
        text = words.get(task.state, task.state)
        if row is not None and row.run is not None:
            if task.state == "running":
                steps = row.run.env_steps
                text = f"runs from {steps:,} env steps" if steps else "runs"
            elif task.state == "finished":
                text = f"finished: {result_text(row)}"
        self.console.say(f"{task.label}: {text}" + (f": {task.reason}" if task.reason else ""))

    def on_poll(self) -> None:
        now_s = time.monotonic()
        self.draw(self.renderable)
        if self.is_shown or self.quiet:
            return
        if now_s - self._looked_s >= LOOK_S:
            self._tell_ends_of_stacks()
            self._looked_s = now_s
        if now_s - self._said_s >= PLAIN_S:
            if self._said_s:
                self.console.say(counts(self.progress.rows()))
            self._said_s = now_s

    def _tell_ends_of_stacks(self) -> None:
        """One line for each run of a stack that has ended since the last time."""
        for row in self.progress.rows() if self.progress.experiment.stacks else ():
            if row.status in OVER and row.member.run not in self._told:
                self._told.add(row.member.run)
                text = f"finished: {result_text(row)}" if row.status == "finished" else row.status
                self.console.say(f"{row.member.group} seed {row.member.seed}: {text}")

    def renderable(self) -> Group:
        rows = self.progress.rows()
        fits = len(rows) + 4 <= self.console.height
        table = runs_table(rows) if fits else groups_table(rows)
        return Group(table, Text(counts(rows), style=out.GREY))


def runs_table(rows: list[Row]) -> Table:
    heads = ("=progress", ">env steps", ">validation", ">test", ">time")
    table = out.table("=config", ">seed", "status", *heads)
    for row in rows:
        run = row.run
        if run is None:
            table.add_row(row.member.group, str(row.member.seed), "waiting", *[""] * 5)
            continue
        score = ScoreText(run.threshold, [])
        best = score(run.best["score"] if run.best else None)
        test = score(run.test["mean"] if run.test else None)
        about = (row.member.group, str(row.member.seed), out.status_text(run), bar(row.progress))
        table.add_row(*about, f"{run.env_steps:,}", best, test, f"{run.wall_s:,.0f} s")
    return table


def groups_table(rows: list[Row]) -> Table:
    """One line per config, for more runs than the terminal has lines."""
    table = out.table("=config", "runs", ">progress", ">solved")
    for group in dict.fromkeys(row.member.group for row in rows):
        own = [row for row in rows if row.member.group == group]
        share = sum(row.progress or 0.0 for row in own) / len(own)
        n_solved = sum(bool(row.run and row.run.solved) for row in own)
        table.add_row(group, counts(own), bar(share), str(n_solved))
    return table


def bar(share: float | None) -> str:
    if share is None:
        return ""
    full = round(BAR * share)
    return f"{'█' * full}{'░' * (BAR - full)} {share:4.0%}"


def result_text(row: Row) -> str:
    run = row.run
    assert run is not None
    score = ScoreText(run.threshold, [])
    found = f"test {score(run.test['mean'])}" if run.test else "not tested"
    solved = " (solved)" if run.solved else ""
    return f"{found}{solved} after {run.env_steps:,} env steps, {run.wall_s:,.1f} s"
