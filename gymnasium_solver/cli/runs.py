"""`gsolve runs [filter...]`: all runs, newest first, as a table that can be filtered and sorted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from gymnasium_solver.runs.query import RunSummary

FIRST_TO_GO = ("note", "tags", "best val", "time", "env steps", "test / solved")
SHORTEST_ID = 24  # "CartPole-v1-…040424-ab12"
WATCH_SECONDS = 2.0


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "runs",
        "List all runs, newest first.",
        "examples:\n  gsolve runs\n  gsolve runs CartPole --limit 5\n"
        "  gsolve runs solved tag=paper\n"
        "  gsolve runs 'test>400' 'policy_lr<0.001' --sort test\n"
        "  gsolve runs --columns seed test policy_lr hidden_dims\n  gsolve runs --watch",
    )
    parser.add_argument(
        "filter",
        nargs="*",
        metavar="FILTER",
        help="words that all occur in id, environment, algorithm, status or a tag (solved: solved "
        "runs), and conditions such as test>400, seed=1, tag=paper, or on any config field",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="show only the first N")
    parser.add_argument(
        "--sort",
        metavar="FIELD",
        help="highest first, -FIELD lowest first: test, val, steps, time, fps, seed, created, or a "
        "config field (default: newest first)",
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        action="extend",
        metavar="FIELD",
        help="show these instead: env, algo, variant, seed, status, test, val, steps, time, fps, "
        "tag, note, or config fields",
    )
    parser.add_argument(
        "--watch", action="store_true", help="show the table again every two seconds until Ctrl-C"
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit {args.limit}: must be 0 or more")
    if args.watch and args.json:
        raise UsageError("--watch is for people, --json for programs: use one of them")

    from gymnasium_solver.cli.tables import make_console, print_json, print_table
    from gymnasium_solver.runs.query import list_runs
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)

    def found() -> "list[RunSummary]":
        return list_runs(root, args.filter, sort_by=args.sort)[: args.limit]

    if args.json:
        print_json([run.to_dict() for run in found()])
        return 0
    console = make_console()
    if args.watch:
        watch(console, lambda: _renderable(console, found(), args.filter, args.columns, root))
        return 0
    shown = _renderable(console, found(), args.filter, args.columns, root)
    if isinstance(shown, str):
        console.print(shown, markup=False)
    else:
        print_table(console, shown)
    return 0


def watch(console: "Console", make: "Callable[[], RenderableType]") -> None:
    """Show what `make` returns, again and again, until Ctrl-C."""
    import time

    from rich.live import Live

    try:
        with Live(make(), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(make(), refresh=True)
    except KeyboardInterrupt:
        return


def _renderable(
    console: "Console",
    runs: "list[RunSummary]",
    words: Sequence[str],
    columns: Sequence[str] | None,
    root: "Path",
) -> "str | Table":
    if not runs:
        text = " ".join(words)
        what = f"no run matches '{text}' in {root}" if text else f"no runs in {root}"
        return f"{what}; create one with gsolve train <env>:<variant>"
    return chosen_table(runs, columns) if columns else runs_table(console, runs)


def chosen_table(runs: "list[RunSummary]", names: Sequence[str]) -> "Table":
    """The id and the fields that were asked for."""
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table
    from gymnasium_solver.runs.query import config_or_empty
    from gymnasium_solver.runs.select import FIELDS, check_column, value_of

    asked = [name for name in dict.fromkeys(names) if name not in ("run", "id")]
    configs = {}
    if any(name not in FIELDS for name in asked):
        configs = {run.id: config_or_empty(run) for run in runs}

    def config(run: "RunSummary") -> dict[str, Any]:
        return configs.get(run.id, {})

    for name in asked:
        check_column(name, runs, config)
    table = plain_table("run", *asked)
    for run in runs:
        table.add_row(Text(run.id), *(Text(_cell(value_of(run, name, config))) for name in asked))
    return table


def _cell(value: Any) -> str:
    import json

    from gymnasium_solver.printable import printable

    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return printable(", ".join(value))
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return printable(text)


def runs_table(console: "Console", runs: "list[RunSummary]") -> "Table":
    """One line per run. On a narrow terminal ids are shortened in the middle, then whole columns
    are dropped; a status is never cut."""
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, shorten_middle

    columns = _columns(runs)
    for name in FIRST_TO_GO:
        can_save = max(0, _width(columns["run"], "run") - SHORTEST_ID)
        if name in columns and _table_width(columns) - can_save > console.width:
            del columns[name]
    excess = max(0, _table_width(columns) - console.width)
    id_width = max(_width(columns["run"], "run") - excess, SHORTEST_ID)
    columns["run"] = [Text(shorten_middle(run.id, id_width)) for run in runs]
    right = {"justify": "right"}
    left = ("run", "status", "tags", "note")
    options = {name: {} if name in left else right for name in columns}
    table = plain_table(*((name, {"no_wrap": True} | options[name]) for name in columns))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


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
    columns = {
        "run": [Text(run.id) for run in runs],
        "status": [status_text(run) for run in runs],
        "env steps": [Text(f"{run.env_steps:,}") for run in runs],
        "best val": best,
        "test / solved": tests,
        "time": [Text(fmt.duration(run.wall_s)) for run in runs],
    }
    if any(run.tags for run in runs):
        columns["tags"] = [Text(", ".join(run.tags)) for run in runs]
    if any(run.note for run in runs):
        columns["note"] = [Text(shorten_end(run.note)) for run in runs]
    return columns


def _width(cells: "list[Text]", name: str) -> int:
    return max(len(name), *(cell.cell_len for cell in cells))


def _table_width(columns: "dict[str, list[Text]]") -> int:
    return sum(_width(cells, name) for name, cells in columns.items()) + 2 * (len(columns) - 1)


def shorten_end(text: str, width: int = 40) -> str:
    first = text.split("\n", 1)[0]
    return first if first == text and len(text) <= width else first[: width - 1] + "…"
