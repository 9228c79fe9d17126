"""`gsolve doctor run RUN`: judges a run, finished or running, from its files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from gymnasium_solver.runs.alerts.alert import AlertRecord
    from gymnasium_solver.runs.alerts.judge import Judge
    from gymnasium_solver.runs.run import Run


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "doctor run",
        "Judge a run, finished or running, from its metrics and events: the same alerts as while\n"
        "training, with what they usually mean and what to try. Exits with 1 if one is active.",
        "examples:\n  gsolve doctor run @last\n  gsolve doctor run a1b2 --json",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.runs.alerts.alert import records
    from gymnasium_solver.runs.alerts.judge import judge_run
    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    run = resolve_run(args.run, runs_root(args.runs_dir))
    alerts, judge = judge_run(run)
    found = records(alerts)
    healthy = not any(record.is_active for record in found)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(
            {
                "run": run.id,
                "healthy": healthy,
                "rows": judge.history.n_rows,
                "alerts": [record.to_dict() for record in found],
                "not_judged": judge.not_judged,
            }
        )
    else:
        print_judgement(run, found, judge)
    return 0 if healthy else 1


def print_judgement(run: "Run", found: "list[AlertRecord]", judge: "Judge") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.dashboard import GREEN, ORANGE
    from gymnasium_solver.cli.tables import make_console, print_pairs

    console = make_console()
    console.print(Text(run.id, style="bold"))
    for record in found:
        mark = ("✗ ", "red") if record.is_active else ("- ", ORANGE)
        console.print(Text.assemble("  ", mark, (record.name, "bold"), f"  {record.span}"))
        rows = [("seen", record.text), ("means", record.meaning), ("try", record.advice)]
        print_pairs(console, rows, indent=6)
    n_silent = len(judge.watches) - len(found) - len(judge.not_judged)
    if judge.history.n_rows:
        text = f"{n_silent} rules found nothing in {judge.history.n_rows:,} rows"
        console.print(Text.assemble("  ", ("✓ ", GREEN), text))
    if judge.not_judged:
        reason = "not logged, or too early"
        rows = [("  not judged", f"{', '.join(judge.not_judged)} ({reason})")]
        print_pairs(console, rows, indent=0)
