"""`gsolve tag RUN TAG...`: add tags to runs, or remove them."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser, UsageError


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "tag",
        "Add tags to a run. gsolve runs tag=TAG lists the runs that have one.",
        "examples:\n  gsolve tag @last paper baseline\n  gsolve tag a1b2 --remove baseline\n"
        "  gsolve tag a1b2",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_argument("tags", nargs="*", metavar="TAG", help="tags to add; none: show them")
    parser.add_argument(
        "--remove", nargs="+", action="extend", default=[], metavar="TAG", help="tags to remove"
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if both := set(args.tags) & set(args.remove):
        raise UsageError(f"{', '.join(sorted(both))}: to be added and removed at once")

    from gymnasium_solver.runs.manage import change_tags, read_labels
    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    run = resolve_run(args.run, runs_root(args.runs_dir))
    changed = args.tags or args.remove
    labels = change_tags(run, args.tags, args.remove) if changed else read_labels(run)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"run": run.id, "tags": list(labels.tags), "note": labels.note})
    else:
        print(f"{run.id}: {', '.join(labels.tags) or 'no tags'}")
    return 0
