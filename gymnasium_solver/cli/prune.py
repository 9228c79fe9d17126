"""`gsolve prune [RUN...]`: delete checkpoints; the best, the last and the top ones stay."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "prune",
        "Delete checkpoints of all runs, or of those named. The best and the last one of each run\n"
        "stay, and the N with the highest validation. Without --yes nothing is deleted.",
        "examples:\n  gsolve prune --keep-top 3\n  gsolve prune a1b2 --keep-top 0 --yes",
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="default: all runs")
    parser.add_argument(
        "--keep-top", type=int, default=0, metavar="N", help="further checkpoints to keep (0)"
    )
    parser.add_argument("--yes", action="store_true", help="delete them")
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.cli.format import file_size
    from gymnasium_solver.runs.manage import prune, spare_checkpoints
    from gymnasium_solver.runs.resolve import resolve_run, run_ids
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    runs = [resolve_run(ref, root) for ref in args.runs or run_ids(root)]
    spare = spare_checkpoints(runs, args.keep_top)
    if args.yes:
        prune(spare)
    word = "deleted" if args.yes else "would delete"
    for one in spare:
        print(f"{word}  {file_size(one.size)}  {one.run.id}/{one.env_steps}")
    total = file_size(sum(one.size for one in spare))
    print(f"{len(spare)} checkpoints of {len(runs)} runs, {total}")
    if spare and not args.yes:
        print("nothing was deleted; add --yes to delete")
    return 0
