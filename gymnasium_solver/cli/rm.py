"""`gsolve rm RUN...`: delete runs; without --yes only what would be deleted is shown."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "rm",
        "Delete runs for good. Without --yes only the runs and their sizes are shown.",
        "examples:\n  gsolve rm a1b2 c3d4\n  gsolve rm a1b2 --yes",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="@last, an id, a part of one, a path"
    )
    parser.add_argument("--yes", action="store_true", help="delete them")
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.cli.format import file_size
    from gymnasium_solver.runs.manage import refuse_running, remove, size_of
    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    runs = list({run.id: run for run in (resolve_run(ref, root) for ref in args.runs)}.values())
    refuse_running(runs)
    sizes = {run.id: size_of(run.path) for run in runs}
    if args.yes:
        remove(runs)
    for run in runs:
        print(f"{'deleted' if args.yes else 'would delete'}  {file_size(sizes[run.id])}  {run.id}")
    if not args.yes:
        print("nothing was deleted; add --yes to delete, or use gsolve archive to keep them aside")
    return 0
