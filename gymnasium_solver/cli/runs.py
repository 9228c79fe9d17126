"""`gsolve runs [filter...]`: all runs, newest first, as a table that can be filtered and sorted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from gymnasium_solver.cli.plain_rows import Column, PlainRows
    from gymnasium_solver.runs.select import Config
    from gymnasium_solver.runs.store import RunStore
    from gymnasium_solver.runs.summary import RunSummary

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
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.runs.store import RunStore

    store = RunStore(runs_root(args.runs_dir))

    def found() -> "list[RunSummary]":
        return store.select(args.filter, args.sort)[: args.limit]

    if args.json:
        print_json([run.to_dict() for run in found()])
        return 0
    console = make_console()
    if args.watch:
        watch(console, lambda: _renderable(console, found(), args.filter, args.columns, store))
        return 0
    shown = _renderable(console, found(), args.filter, args.columns, store)
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
    store: "RunStore",
) -> "str | Table | PlainRows":
    if not runs:
        text = " ".join(words)
        what = f"no run matches '{text}'" if text else "no runs"
        return f"{what} in {store.root}; create one with gsolve train <env>:<variant>"
    return chosen_table(runs, columns, store.config) if columns else runs_table(console, runs)


def chosen_table(runs: "list[RunSummary]", names: Sequence[str], config: "Config") -> "Table":
    """The id and the fields that were asked for."""
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table
    from gymnasium_solver.runs.select import check_column, value_of

    asked = [name for name in dict.fromkeys(names) if name not in ("run", "id")]
    for name in asked:
        check_column(name, runs, config)
    table = plain_table("run", *asked)
    for run in runs:
        table.add_row(Text(run.id), *(Text(_cell(value_of(run, name, config))) for name in asked))
    return table


def _cell(value: Any) -> str:
    import json

    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return printable(", ".join(value))
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return printable(text)


def runs_table(console: "Console", runs: "list[RunSummary]") -> "PlainRows":
    """One line per run. On a narrow terminal ids are shortened in the middle, then whole columns
    are dropped; a status is never cut."""
    from gymnasium_solver.cli.plain_rows import Cell, Column, PlainRows
    from gymnasium_solver.cli.tables import shorten_middle

    columns = _columns(runs)
    widths = {name: column.width for name, column in columns.items()}
    gaps = 2 * (len(widths) - 1)
    for name in FIRST_TO_GO:
        can_save = max(0, widths["run"] - SHORTEST_ID)
        if name in widths and sum(widths.values()) + gaps - can_save > console.width:
            del widths[name], columns[name]
            gaps -= 2
    excess = max(0, sum(widths.values()) + gaps - console.width)
    id_width = max(widths["run"] - excess, SHORTEST_ID)
    ids = [printable(run.id) for run in runs]
    columns["run"] = Column("run", [Cell(shorten_middle(run_id, id_width)) for run_id in ids])
    return PlainRows(list(columns.values()))


def _columns(runs: "list[RunSummary]") -> "dict[str, Column]":
    from gymnasium_solver.cli import format as fmt
    from gymnasium_solver.cli.plain_rows import Cell, Column
    from gymnasium_solver.cli.summary import score_text
    from gymnasium_solver.cli.tables import status_cell

    best, tests = [], []
    for run in runs:
        score = score_text(run)
        best.append(score(run.best["score"]) if run.best else "-")
        test = score(run.test["mean"]) if run.test else "-"
        tests.append(test if run.threshold is None else f"{test} / {score.threshold}")
    columns = {"run": [run.id for run in runs]}
    columns |= {
        "status": [],
        "env steps": [f"{run.env_steps:,}" for run in runs],
        "best val": best,
        "test / solved": tests,
        "time": [fmt.duration(run.wall_s) for run in runs],
    }
    if any(run.tags for run in runs):
        columns["tags"] = [", ".join(run.tags) for run in runs]
    if any(run.note for run in runs):
        columns["note"] = [shorten_end(run.note) for run in runs]
    left = ("run", "status", "tags", "note")
    made = {
        name: Column(name, [Cell(printable(text)) for text in texts], name not in left)
        for name, texts in columns.items()
    }
    made["status"].cells = [status_cell(run) for run in runs]
    return made


def shorten_end(text: str, width: int = 40) -> str:
    first = text.split("\n", 1)[0]
    return first if first == text and len(text) <= width else first[: width - 1] + "…"
