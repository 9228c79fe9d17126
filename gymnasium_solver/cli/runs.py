"""`gsolve runs [filter]`: the runs there are, newest first."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "runs",
        "The runs there are, newest first.",
        "examples:\n  gsolve runs\n  gsolve runs CartPole --limit 5\n  gsolve runs --json",
    )
    parser.add_argument("filter", nargs="?", help="show those whose id has this")
    parser.add_argument("--limit", type=int, metavar="N", help="the N newest only")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.cli import format as fmt
    from gymnasium_solver.cli.tables import (
        make_console,
        plain_table,
        print_json,
        print_table,
        status_text,
    )
    from gymnasium_solver.runs.query import list_runs
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    runs = list_runs(root, args.filter)[: args.limit]
    if args.json:
        print_json([run.to_dict() for run in runs])
        return 0
    if not runs:
        what = f"no run matches '{args.filter}' in {root}" if args.filter else f"no runs in {root}"
        make_console().print(f"{what}; gsolve train <env>:<variant> makes one", markup=False)
        return 0
    right = {"justify": "right", "no_wrap": True}
    widest = max(len(run.id) for run in runs)
    table = plain_table(
        ("run", {"no_wrap": True, "min_width": widest}),  # the id is what is typed next: never cut
        ("status", {"no_wrap": True}),
        ("env steps", right),
        ("best / solved", right),
        ("time", right),
    )
    for run in runs:
        best = fmt.number(run.best["score"], 1) if run.best else "-"
        aim = "" if run.threshold is None else f" / {run.threshold:g}"
        table.add_row(
            run.id, status_text(run), f"{run.env_steps:,}", best + aim, fmt.duration(run.wall_s)
        )
    print_table(make_console(), table)
    return 0
