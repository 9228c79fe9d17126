"""`gsolve jobs`: runs and experiments in the background. `jobs logs JOB`, `jobs cancel JOB`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.experiments.jobs import JobInfo

ACTIONS = ("list", "logs", "cancel")


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "jobs",
        "List runs and experiments that were started in the background or on a cluster, show\n"
        "their output, or ask them to save and stop.",
        "examples:\n  gsolve train CartPole-v1:ppo --seeds 5 --detach\n  gsolve jobs\n"
        "  gsolve jobs logs a1b2 --follow\n  gsolve jobs cancel a1b2",
    )
    parser.add_argument("action", nargs="?", default="list", metavar="list|logs|cancel")
    parser.add_argument("job", nargs="?", metavar="JOB", help="name, a part of it, or its id")
    parser.add_argument("--all", action="store_true", help="also list what has ended")
    parser.add_argument(
        "-n", "--lines", type=int, default=50, metavar="N", help="lines of output (50)"
    )
    parser.add_argument("--follow", action="store_true", help="wait for more output until Ctrl-C")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.action not in ACTIONS:
        raise UsageError(f"'{args.action}': expected {', '.join(ACTIONS)}")
    if (args.job is None) != (args.action == "list"):
        fix = "name a job" if args.job is None else "remove the name"
        raise UsageError(f"{args.action}: {fix}")

    from gymnasium_solver.cli.tables import print_json
    from gymnasium_solver.experiments.jobs import cancel, find_job, list_jobs, logs
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    if args.action == "list":
        found = [job for job in list_jobs(root) if args.all or job.is_active]
        if args.json:
            print_json([job.to_dict() for job in found])
        else:
            _print(found, root, args.all)
        return 0
    job = find_job(args.job, root)
    if args.action == "logs":
        lines = logs(job, args.lines)
        if args.json:
            print_json({"job": job.to_dict(), "lines": lines})
        else:
            _show(job, lines, args.follow)
        return 0
    done = cancel(job)
    if args.json:
        print_json({"job": job.to_dict(), "cancelled": done})
    else:
        print(f"{job.name}: asked to save and end" if done else f"{job.name} is not running")
    return 0 if done else 1


def _print(jobs: "Sequence[JobInfo]", root: Path, is_all: bool) -> None:
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table

    if not jobs:
        print(f"no jobs {'' if is_all else 'running '}in {root}")
        return
    table = plain_table(("job", {"overflow": "fold"}), "kind", "backend", "id", "status", "started")
    for job in jobs:
        started = job.at[:19].replace("T", " ")
        table.add_row(job.name, job.kind, job.backend, job.id, job.status, started)
    print_table(make_console(), table)


def _show(job: "JobInfo", lines: list[str], is_followed: bool) -> None:
    from gymnasium_solver.backends import local
    from gymnasium_solver.printable import printable

    for line in lines:
        print(printable(line))
    if not is_followed or job.backend != "local":
        return
    with (Path(job.path) / local.LOG).open(errors="replace") as file:
        file.seek(0, 2)
        while True:
            text = file.read()
            if text:
                print("\n".join(printable(line) for line in text.splitlines()), flush=True)
            elif not local.is_running(Path(job.path)):
                return
            else:
                time.sleep(0.5)
