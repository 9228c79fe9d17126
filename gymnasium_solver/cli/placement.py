"""Where runs train: `--backend`, `--resources`, `--sbatch` and `--detach`."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Args, UsageError
from gymnasium_solver.errors import missing_training
from gymnasium_solver.suggest import did_you_mean

if TYPE_CHECKING:
    from gymnasium_solver.backends.resources import Resources
    from gymnasium_solver.experiments.experiment import Experiment
    from gymnasium_solver.experiments.pool import Backend

BACKENDS = ("local", "ray", "slurm", "dstack", "modal")
FOLLOW_S = 3.0


def backend_of(args: Args) -> str:
    name: str = args.backend or "local"
    if name not in BACKENDS:
        hint = did_you_mean(name, BACKENDS) or f"Expected {', '.join(BACKENDS)}."
        raise UsageError(f"--backend {name}: unknown. {hint}")
    if name == "slurm" and shutil.which("sbatch") is None:
        raise UsageError(
            "--backend slurm: sbatch is not on the PATH; use a login node of a cluster"
        )
    if args.sbatch is not None and name != "slurm":
        raise UsageError("--sbatch is for --backend slurm")
    if args.resources is not None and name == "local":
        raise UsageError("--resources is for clusters; on this machine use --jobs")
    return name


def check_stack(args: Args) -> None:
    if (name := backend_of(args)) != "local":
        raise UsageError(f"--stack trains in one process on this machine: remove --backend {name}")


def check_shared(name: str) -> None:
    """UsageError if a coordinator here cannot see the folders of the runs."""
    if name in ("dstack", "modal"):
        raise UsageError(
            f"--backend {name}: its runs have a disk of their own, but a sweep reads their results "
            "to choose the next ones; use local, ray or slurm"
        )


def detach(experiment: "Experiment", args: Args) -> int:
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


def tracked(args: Args) -> dict[str, str]:
    """The environment variable that makes runs start their trackers."""
    from gymnasium_solver.share.trackers.sink import read_names

    return {"GSOLVE_TRACK": ",".join(read_names(",".join(args.track)))} if args.track else {}


def needs_of(configs: Sequence[Path], args: Args) -> "Resources":
    """The largest needs of any of these configs, with what the user has overridden."""
    from gymnasium_solver.backends.resources import Resources, estimate
    from gymnasium_solver.training.prepare import load_config

    try:
        each = [estimate(load_config(str(path))) for path in configs]
    except ModuleNotFoundError as error:
        if missing_training(error) is None:
            raise
        return Resources.given(args.resources)
    largest = Resources.largest(each)
    chosen = largest if args.resources is None else largest.override(args.resources)
    note = f" (estimated: {largest})" if chosen != largest else " (estimated; change --resources)"
    print(f"each run gets {chosen}{note}", file=sys.stderr if getattr(args, "json", 0) else None)
    return chosen


def pool_backend(name: str, configs: Sequence[Path], args: Args) -> "Backend | None":
    """What a coordinator here starts runs on; None: this machine. Its runs are not all known at the
    start, so that it must see each of their folders."""
    if name == "local":
        return None
    needs = needs_of(configs, args)
    if name == "slurm":
        from gymnasium_solver.backends.slurm import SlurmBackend

        return SlurmBackend(needs, sbatch_options(args))
    from gymnasium_solver.backends.ray_tasks import RayBackend

    address = os.environ.get("RAY_ADDRESS")
    return RayBackend(address, cpus=needs.cpus, gpus=needs.gpus, memory_gb=needs.memory_gb)


def sbatch_options(args: Args) -> list[str]:
    return [f"--{word.lstrip('-')}" for word in shlex.split(args.sbatch or "")]


def on_slurm(experiment: "Experiment", args: Args, at_end: Callable[[], None]) -> int:
    """Submit a job array, and follow it unless --detach."""
    from gymnasium_solver.backends import slurm

    script = slurm.write_script(
        experiment.path / "slurm",
        [experiment.task(member).argv for member in experiment.members],
        needs_of(experiment.config_files(), args),
        name=experiment.id,
        jobs=args.jobs,
        env=tracked(args),
        options=sbatch_options(args),
    )
    job_id = slurm.submit(script)
    print(f"submitted {script} as Slurm job {job_id}")
    return 0 if args.detach else follow(experiment, args, job_id, at_end)


def follow(experiment: "Experiment", args: Args, job_id: str, at_end: Callable[[], None]) -> int:
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


def on_service(backend: str, experiment: "Experiment", args: Args) -> int:
    """Write what dstack or Modal needs, and hand it over if its command is installed."""
    from gymnasium_solver.backends import cloud
    from gymnasium_solver.experiments.experiment import CONFIGS

    runs = [
        cloud.CloudRun(m.run, (experiment.path / CONFIGS / m.config).read_text(), m.seed)
        for m in experiment.members
    ]
    needs = needs_of(experiment.config_files(), args)
    made = cloud.write(backend, experiment.path / backend, experiment.id, runs, needs)
    print(f"wrote {made}")
    if shutil.which(backend) is None:
        file = made / "RUN.dstack.yml" if made.is_dir() else made
        command = shlex.join(cloud.command(backend, file))
        print(f"{backend} is not installed here. Start it with:\n  {command}")
        return 0
    return cloud.submit(backend, made)
