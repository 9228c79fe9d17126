"""`gsolve archive RUN...`: move runs out of the listing, or back."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser, UsageError


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "archive",
        "Move runs into .archive in the runs folder, out of the listing of gsolve runs. Without\n"
        "--yes only what would be moved is shown.",
        "examples:\n  gsolve archive a1b2 c3d4 --yes\n  gsolve archive --list\n"
        "  gsolve archive --restore a1b2 --yes",
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="@last, an id, a part of one")
    parser.add_argument("--restore", action="store_true", help="move archived runs back")
    parser.add_argument("--list", action="store_true", help="list the archived runs")
    parser.add_argument("--yes", action="store_true", help="move them")
    parser.add_runs_dir()
    args = parser.read(argv)
    if not args.runs and not args.list:
        raise UsageError("name the runs to archive, or use --list. See gsolve archive --help")

    from gymnasium_solver.runs.manage import ARCHIVE, archive, refuse_running, restore
    from gymnasium_solver.runs.resolve import resolve_run, run_ids
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    if args.list:
        print("\n".join(run_ids(root / ARCHIVE)) or f"no archived runs in {root}")
        return 0
    source = root / ARCHIVE if args.restore else root
    runs = list({run.id: run for run in (resolve_run(ref, source) for ref in args.runs)}.values())
    refuse_running(runs)
    if args.yes:
        (restore if args.restore else archive)(runs)
    done, plan = ("restored", "would restore") if args.restore else ("archived", "would archive")
    for run in runs:
        print(f"{done if args.yes else plan}  {run.id}")
    if not args.yes:
        print("nothing was moved; add --yes to move them")
    return 0
