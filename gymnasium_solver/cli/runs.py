"""`gsolve runs [filter]`: all runs, newest first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from gymnasium_solver.runs.query import RunSummary

FIRST_TO_GO = ("best val", "time", "env steps", "test / solved")
SHORTEST_ID = 24  # "CartPole-v1-…040424-ab12"


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "runs",
        "List all runs, newest first.",
        "examples:\n  gsolve runs\n  gsolve runs CartPole --limit 5\n  gsolve runs solved\n"
        "  gsolve runs --json",
    )
    parser.add_argument(
        "filter",
        nargs="?",
        help="words that all occur in id, environment, algorithm or status; solved: solved runs",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="show only the N newest")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit {args.limit}: must be 0 or more")

    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.runs.query import list_runs
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    runs = list_runs(root, args.filter)[: args.limit]
    if args.json:
        print_json([run.to_dict() for run in runs])
        return 0
    if not runs:
        what = f"no run matches '{args.filter}' in {root}" if args.filter else f"no runs in {root}"
        make_console().print(f"{what}; create one with gsolve train <env>:<variant>", markup=False)
        return 0
    print_runs(make_console(), runs)
    return 0


def print_runs(console: "Console", runs: "list[RunSummary]") -> None:
    """One line per run. On a narrow terminal ids are shortened in the middle, then whole columns
    are dropped; a status is never cut."""
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table, shorten_middle

    columns = _columns(runs)
    for name in FIRST_TO_GO:
        can_save = max(0, _width(columns["run"], "run") - SHORTEST_ID)
        if _table_width(columns) - can_save > console.width:
            del columns[name]
    excess = max(0, _table_width(columns) - console.width)
    id_width = max(_width(columns["run"], "run") - excess, SHORTEST_ID)
    columns["run"] = [Text(shorten_middle(run.id, id_width)) for run in runs]
    right = {"justify": "right"}
    options = {name: {} if name in ("run", "status") else right for name in columns}
    table = plain_table(*((name, {"no_wrap": True} | options[name]) for name in columns))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    print_table(console, table)


def _columns(runs: "list[RunSummary]") -> "dict[str, list[Text]]":
    from rich.text import Text

    from gymnasium_solver.cli import format as fmt
    from gymnasium_solver.cli.summary import score_text
    from gymnasium_solver.cli.tables import status_text

    best, tests = [], []
    for run in runs:
        score = score_text(run)
        best.append(Text(score(run.best["score"]) if run.best else "-"))
        test = score(run.test["mean"]) if run.test else "-"
        tests.append(Text(test if run.threshold is None else f"{test} / {score.threshold}"))
    return {
        "run": [Text(run.id) for run in runs],
        "status": [status_text(run) for run in runs],
        "env steps": [Text(f"{run.env_steps:,}") for run in runs],
        "best val": best,
        "test / solved": tests,
        "time": [Text(fmt.duration(run.wall_s)) for run in runs],
    }


def _width(cells: "list[Text]", name: str) -> int:
    return max(len(name), *(cell.cell_len for cell in cells))


def _table_width(columns: "dict[str, list[Text]]") -> int:
    return sum(_width(cells, name) for name, cells in columns.items()) + 2 * (len(columns) - 1)
