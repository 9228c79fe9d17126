"""`gsolve repro RUN`: repeat a run from its folder, and say whether it came to the same."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from gymnasium_solver.experiments.pool import Task
    from gymnasium_solver.experiments.repro import Verdict


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "repro",
        "Repeat a run: train its config with its seed again and compare. On the same kind of\n"
        "machine the weights must be identical, elsewhere the score must be in the interval of\n"
        "the recorded seeds. Exits with 0 for pass, 1 for fail.",
        "examples:\n  gsolve repro @last\n  gsolve repro a1b2 --against c3d4 --json",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id, a part of one, a path")
    parser.add_argument(
        "--against", metavar="RUN", help="compare with this run instead of training again"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the verdict")
    parser.add_trust()
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.experiments.pool import check_over
    from gymnasium_solver.experiments.repro import check_repeatable, judge, repetition
    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import Run, runs_root

    root = runs_root(args.runs_dir)
    run = resolve_run(args.run, root)
    notes = check_repeatable(run)
    if args.against is not None:
        repeated = resolve_run(args.against, root)
    else:
        task = repetition(run, root)
        if args.trust:
            task.words = (*task.words, "--trust")
        _train(task, quiet=args.quiet or args.json)
        check_over([task])
        repeated = Run(task.folder)
    found = judge(run, repeated, root, notes)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(found.to_dict())
    else:
        _print(found)
    return 0 if found.passed else 1


def _train(task: "Task", quiet: bool) -> None:
    """Train in the background, with a line about the progress every now and then."""
    import time

    from gymnasium_solver.experiments.pool import Pool
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import Run, is_run

    said = time.monotonic()

    def on_poll() -> None:
        nonlocal said
        if quiet or time.monotonic() - said < 10:
            return
        said = time.monotonic()
        if is_run(task.folder):
            run = get_run(Run(task.folder))
            print(f"{run.env_steps:,} of {run.max_env_steps or 0:,} env steps", flush=True)

    if not quiet:
        print(f"repeating {task.label} in {task.folder}", flush=True)
    pool = Pool(1, retry_failed=True)
    pool.add(task)
    pool.run(on_poll=on_poll)


def _print(found: "Verdict") -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()
    word, style = ("PASS", "green") if found.passed else ("FAIL", "red")
    console.print(f"{word}  {found.text}", style=style, markup=False, soft_wrap=True)
    if found.interval is not None:
        rests = f"{found.n_seeds} recorded seeds" if found.n_seeds > 1 else "the error of the tests"
        console.print(f"the interval rests on {rests}", markup=False)
    for name, (before, after) in found.differed.items():
        console.print(f"{name}: {before} → {after}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
