"""Verbs about many runs: `experiments`, `jobs`, `benchmark`; and `repro`, which repeats one."""

import time
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.backends import local
from gymnasium_solver.cli import many
from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.cli.train import saves_at_sigterm
from gymnasium_solver.experiments import experiment as folders
from gymnasium_solver.experiments.experiment import Progress, counts
from gymnasium_solver.experiments.pool import Pool, Task, check_over
from gymnasium_solver.paths import open_regular
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run, is_run

if TYPE_CHECKING:
    from gymnasium_solver.experiments.jobs import JobInfo

MOST_GROUPS = 3
REPORT_S = 10.0  # between lines of `repro`


@verb("""
experiments: List the experiments, newest first, or the runs of one.

[EXPERIMENT]     @last, an id, a part of one, a path
--watch          show the table again every two seconds until Ctrl-C
--json --runs-dir

examples:
  gsolve experiments
  gsolve experiments @last --watch
  gsolve train --resume EXPERIMENT
  gsolve compare EXPERIMENT
""")
def experiments(args: Args) -> None:
    root = args.root()
    if args.experiment is None:
        found = [
            folders.load(root / folders.FOLDER / name) for name in folders.experiment_ids(root)
        ]
        rows = [Progress(experiment).rows() for experiment in found]
        facts = [
            folders.facts(experiment, own) for experiment, own in zip(found, rows, strict=True)
        ]
        if not found and not args.json:
            print(f"no experiments in {root}; start one with gsolve train CONFIG --seeds 5")
        elif not out.told_json(args, facts):
            table = out.table("~experiment", "created", "status", "runs", "configs")
            for one, own in zip(facts, rows, strict=True):
                more, created = len(one["groups"]) - MOST_GROUPS, one["created_at"][:16]
                names = ", ".join(one["groups"][:MOST_GROUPS])
                names += f" and {more} more" if more > 0 else ""
                when = created.replace("T", " ")
                table.add_row(one["id"], when, one["status"], counts(own), names)
            out.show(table)
        return
    experiment = folders.open_experiment(args.experiment, root)
    progress = Progress(experiment)
    if args.watch and not args.json:
        from gymnasium_solver.cli.runs import watch

        watch(out.make_console(), lambda: many.runs_table(progress.rows()))
        return
    now = progress.rows()
    data = folders.facts(experiment, now) | {"runs": [row.to_dict() for row in now]}
    out.tell(args, data, many.runs_table(now), f"{experiment.id}: {counts(now)}")


@verb("""
jobs: List runs and experiments that were started in the background or on a cluster, show
their output, or ask them to save and stop.

[list|logs|cancel]=list
[JOB]                name, a part of it, or its id
--all                also list what has ended
-n, --lines INT=50   lines of output
--follow             wait for more output until Ctrl-C
--json --runs-dir

examples:
  gsolve train CartPole-v1:ppo --seeds 5 --detach
  gsolve jobs
  gsolve jobs logs a1b2 --follow
  gsolve jobs cancel a1b2
""")
def jobs(args: Args) -> int:
    if (args.job is None) != (args.action == "list"):
        fix = "name a job" if args.job is None else "remove the name"
        raise UsageError(f"{args.action}: {fix}")

    from gymnasium_solver.experiments.jobs import cancel, find_job, list_jobs, logs

    root = args.root()
    if args.action == "list":
        found = [job for job in list_jobs(root) if args.all or job.is_active]
        table = out.table("~job", "kind", "backend", "id", "status", "started")
        for job in found:
            started = job.at[:19].replace("T", " ")
            table.add_row(job.name, job.kind, job.backend, job.id, job.status, started)
        nothing = f"no jobs {'' if args.all else 'running '}in {root}"
        out.tell(args, found, table if found else nothing)
        return 0
    job = find_job(args.job, root)
    if args.action == "logs":
        lines = logs(job, args.lines)
        if not out.told_json(args, {"job": job, "lines": lines}):
            _show_log(job, lines, args.follow)
        return 0
    done = cancel(job)
    text = f"{job.name}: asked to save and end" if done else f"{job.name} is not running"
    out.tell(args, {"job": job, "cancelled": done}, text)
    return 0 if done else 1


def _show_log(job: "JobInfo", lines: list[str], is_followed: bool) -> None:

    for line in lines:
        print(printable(line))
    if not is_followed or job.backend != "local":
        return
    log = open_regular(Path(job.path) / local.LOG)
    with TextIOWrapper(log, errors="replace") as file:
        file.seek(0, 2)
        while True:
            text = file.read()
            if text:
                print("\n".join(printable(line) for line in text.splitlines()), flush=True)
            elif not local.is_running(Path(job.path)):
                return
            else:
                time.sleep(0.5)


@verb("""
benchmark: Run or resume a benchmark: configs x seeds, declared in a file. Writes the table as
Markdown, CSV and JSON with curves, from run folders only.

FILE                 the YAML file that declares it
--jobs N             runs at a time (default: one per CPU)
--table              train nothing, write the table of what there is
--list               show what would be run, and stop
-o, --output DIR     folder of the table (default: the experiment's)
--detach             run in the background
-q, --quiet          print only the table
--backend --resources --sbatch --trust --json --runs-dir

examples:
  gsolve benchmark benchmarks/classics.yaml --jobs 2
  gsolve benchmark benchmarks/classics.yaml --table -o benchmarks/results
""")
@saves_at_sigterm
def benchmark(args: Args) -> int:
    from gymnasium_solver.experiments import benchmark as declared_ones

    declared = declared_ones.read_benchmark(Path(args.file))
    if args.list:
        for entry in declared.entries:
            print(f"{entry.label}: {len(declared.seeds)} seeds")
        print(f"{len(declared.entries) * len(declared.seeds)} runs")
        return 0
    is_new_allowed = not args.table
    experiment = declared_ones.take_up(
        declared, args.root(), args.trust, is_new_allowed=is_new_allowed
    )
    code = 0
    if not args.table:
        args.quiet, args.track = args.quiet or args.json, []
        code = many.run_placed(experiment, args, lambda: None)
        if args.detach:
            return code
    folder = Path(args.output or experiment.path)
    files = declared_ones.write_tables(declared, experiment, folder)
    if args.json:
        print(files[2].read_text())
        return code
    heads = [*declared_ones.HEADS[:2], *(f">{head}" for head in declared_ones.HEADS[2:])]
    rows = [declared_ones.cells(row) for row in declared_ones.rows_of(declared, experiment)]
    out.show(out.table(*heads, rows=rows), *files)
    return code


@verb("""
repro: Repeat a run: train its config with its seed again and compare. On the same kind of
machine the weights must be identical, elsewhere the score must be in the interval of
the recorded seeds. Exits with 0 for pass, 1 for fail.

RUN
--against RUN    compare with this run instead of training again
-q, --quiet      print only the verdict
--trust --json --runs-dir

examples:
  gsolve repro @last
  gsolve repro a1b2 --against c3d4
""")
def repro(args: Args) -> int:
    from gymnasium_solver.experiments.repro import check_repeatable, judge, repetition

    root, run = args.root(), args.resolved_run()
    notes = check_repeatable(run)
    if args.against is not None:
        repeated = resolve_run(args.against, root)
    else:
        task = repetition(run, root)
        if args.trust:
            task.words = (*task.words, "--trust")
        _repeat(task, quiet=args.quiet or args.json)
        check_over([task])
        repeated = Run(task.folder)
    found = judge(run, repeated, notes)
    if not out.told_json(args, found):
        word, style = ("PASS", "green") if found.passed else ("FAIL", "red")
        out.show(f"{word}  {found.text}", style=style)
        if found.interval is not None:
            seeds = f"{found.n_seeds} recorded seeds"
            rests = seeds if found.n_seeds > 1 else "the error of the tests"
            out.show(f"the interval rests on {rests}")
        out.show(
            *(f"{name}: {before} → {after}" for name, (before, after) in found.differed.items())
        )
        out.show(*(f"note: {note}" for note in found.notes))
    return 0 if found.passed else 1


def _repeat(task: Task, quiet: bool) -> None:
    """Train in the background, with a line about the progress every now and then."""

    said_s = time.monotonic()

    def on_poll() -> None:
        nonlocal said_s
        if quiet or time.monotonic() - said_s < REPORT_S:
            return
        said_s = time.monotonic()
        if is_run(task.folder):
            run = get_run(Run(task.folder))
            print(f"{run.env_steps:,} of {run.max_env_steps or 0:,} env steps", flush=True)

    if not quiet:
        print(f"repeating {task.label} in {task.folder}", flush=True)
    pool = Pool(1, retry_failed=True)
    pool.add(task)
    pool.run(on_poll=on_poll)
