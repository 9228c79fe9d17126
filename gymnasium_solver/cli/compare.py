"""`gsolve compare RUN...`: scores of groups of seeds with intervals, and whether one is better."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.experiments.compare import Comparison
    from gymnasium_solver.experiments.groups import Group

FORMATS = (".png", ".svg", ".pdf", ".csv", ".md", ".json")


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "compare",
        "Compare runs. Runs whose configs differ only by the seed form a group; the first is the\n"
        "baseline. A group is called better only if its seeds show it.",
        "examples:\n  gsolve compare a1b2 c3d4 e5f6\n"
        "  gsolve compare old=a1b2,c3d4,e5f6 new=0a1b,2c3d,4e5f -o compare.png\n"
        "  gsolve compare a1b2 c3d4 --json",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="@last, an id, a part of one, a path; an experiment; RUN/@last or RUN/<env_steps> for "
        "one checkpoint; label=RUN,RUN groups runs by hand",
    )
    parser.add_argument(
        "-o",
        "--output",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="also write files: .png, .svg or .pdf curves with bands, .csv, .md, .json",
    )
    parser.add_argument(
        "--x", choices=("env_steps", "wall_s"), default="env_steps", help="x axis of the curves"
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    outputs = [Path(name) for name in args.output or []]
    for path in outputs:
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"cannot write {path}; expected one of {', '.join(FORMATS)}")

    from gymnasium_solver.experiments.compare import compare
    from gymnasium_solver.experiments.groups import group_runs
    from gymnasium_solver.runs.run import runs_root

    groups = group_runs(args.runs, runs_root(args.runs_dir))
    comparison = compare(groups)
    for path in outputs:
        _write(path, comparison, groups, args.x)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(comparison.to_dict() | {"files": [str(path) for path in outputs]})
    else:
        print_comparison(comparison, outputs)
    return 0


def print_comparison(comparison: "Comparison", outputs: Sequence[Path] = ()) -> None:
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table
    from gymnasium_solver.experiments.comparison_report import HEADS, notes, rows

    console = make_console()
    right = {"justify": "right", "no_wrap": True}
    table = plain_table(HEADS[0], *((head, right) for head in HEADS[1:]))
    for row in rows(comparison.groups):
        table.add_row(*row)
    print_table(console, table)
    for line in notes(comparison):
        console.print(line, markup=False)
    if comparison.differences:
        fields = ", ".join(list(comparison.differences)[:8])
        more = len(comparison.differences) - 8
        tail = f" and {more} more" if more > 0 else ""
        console.print(f"fields that differ: {fields}{tail}", style="bright_black", markup=False)
    for path in outputs:
        console.print(str(path), markup=False)


def _write(path: Path, comparison: "Comparison", groups: "Sequence[Group]", x: str) -> None:
    import json

    from gymnasium_solver.experiments.comparison_report import csv_text, markdown

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix.lower():
            case ".csv":
                path.write_text(csv_text(comparison))
            case ".md":
                path.write_text(markdown(comparison))
            case ".json":
                text = json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False)
                path.write_text(text + "\n")
            case _:
                from gymnasium_solver.experiments.curve_pictures import draw

                draw(groups, path, x, over=comparison.over_environments)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
