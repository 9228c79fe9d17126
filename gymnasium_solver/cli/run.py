"""`gsolve run RUN`: details of one run: result, evaluations, checkpoints, files, next commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.cli.run_metrics import add_metric_flags, show_metrics
from gymnasium_solver.printable import printable_lines

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.runs.query import RunDetails, RunSummary
    from gymnasium_solver.runs.words import ScoreText

SHOWN_EVALS = 10


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "run",
        "Show one run in detail.",
        "examples:\n  gsolve run @last\n  gsolve run @last --log 20\n  gsolve run a1b2 --json\n"
        "  gsolve run @last --metrics approx_kl 'train/opt/loss/*'\n"
        "  gsolve run @last --csv metrics.csv",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_argument(
        "--log", type=int, metavar="N", help="show only the last N lines of its run.log"
    )
    add_metric_flags(parser)
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.log is not None and args.log < 0:
        raise UsageError(f"--log {args.log}: must be 0 or more")

    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.runs.query import get_details, get_log
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    if args.log is not None:
        lines = get_log(args.run, lines=args.log, root=root)
        print_json(lines) if args.json else print(printable_lines("\n".join(lines)))
        return 0
    if args.csv is not None or args.metrics is not None:
        return show_metrics(args.run, root, args)
    details = get_details(args.run, root)
    run = details.summary
    if args.json:
        from gymnasium_solver.cli.summary import measured_from_random

        more = {"normalized": measured_from_random(run), "evals": details.evaluations}
        more["alerts"] = [alert.to_dict() for alert in details.alerts]
        print_json(run.to_dict() | more)
    else:
        print_run(make_console(), details, args.runs_dir)
    return 0


def print_run(console: "Console", details: "RunDetails", runs_dir: str | None = None) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.summary import (
        alert_rows,
        next_rows,
        normalized_row,
        verdict,
        why_modes_differ,
    )
    from gymnasium_solver.cli.tables import print_pairs, status_text
    from gymnasium_solver.runs.query import test_score
    from gymnasium_solver.runs.words import ScoreText, stopped

    run, val = details.summary, details.validations
    console.print(Text.assemble((run.id, "bold"), "  ", status_text(run)))
    console.print(verdict(run))
    rows: list[tuple[str, str | Text]] = [
        ("env", run.env_id),
        ("agent", f"{run.algo_id}, variant {run.variant}, seed {run.seed}"),
        ("created", run.created_at),
        ("done", f"{run.env_steps:,} env steps, {run.epoch:,} epochs, {run.episodes:,} episodes"),
        ("stopped", stopped(run, "not yet")),
    ]
    scores = [event["mean"] for event in val if event.get("mean") is not None]
    if scores:
        rows.append(("val", f"{fmt.sparkline(scores, 40)}  {len(scores)} evaluations"))
    rows += normalized_row(run)
    score = ScoreText(run.threshold, scores)
    # The newest of each kind.
    tests = {bool(event.get("greedy")): event for event in details.tests}
    for i, (greedy, test) in enumerate(sorted(tests.items(), reverse=True)):
        text = f"{'greedy' if greedy else 'sampled'} {score.test(test_score(test))}"
        rows.append(("test" if i == 0 else "", f"{text}, std {score(test.get('std'))}"))
    if why := why_modes_differ(run, list(tests.values())):
        rows.append(("", why))
    if n_failed := len(details.failed_tests):
        rows.append(("", f"{n_failed} earlier test{'s' * (n_failed > 1)} failed"))
    rows += alert_rows(run)
    rows.append(("folder", str(run.path)))
    print_pairs(console, rows)
    for label, command in next_rows(run, runs_dir):  # not wrapped, so that they can be copied
        line = Text.assemble((f"  {label:<9}", "bright_black"), command)
        console.print(line, soft_wrap=True)
    _print_checkpoints(console, run, score)
    _print_evals(console, val, score)


def _print_checkpoints(console: "Console", run: "RunSummary", score: "ScoreText") -> None:
    from gymnasium_solver.cli.tables import plain_table, print_table

    if not run.checkpoints:
        return
    right = {"justify": "right"}
    table = plain_table(("  checkpoint", right), ("val", right), "")
    for checkpoint in run.checkpoints:
        marks = [f"@{mark}" for mark in ("best", "last") if checkpoint[mark]]
        table.add_row(f"{checkpoint['env_steps']}", score(checkpoint["score"]), " ".join(marks))
    console.print()
    print_table(console, table)


def _print_evals(console: "Console", evals: list[dict[str, Any]], score: "ScoreText") -> None:
    from gymnasium_solver.cli.tables import plain_table, print_table

    if not evals:
        return
    right = {"justify": "right"}
    table = plain_table(
        *((name, right) for name in ("  val at", "mean", "std", "min", "max", "length", "episodes"))
    )
    for event in evals[-SHOWN_EVALS:]:
        table.add_row(
            f"{event['env_steps']:,}",
            *(score(event.get(name)) for name in ("mean", "std", "min", "max")),
            fmt.number(event.get("length_mean"), 1),
            fmt.number(event.get("episodes")),
        )
    console.print()
    if len(evals) > SHOWN_EVALS:
        console.print(f"  the last {SHOWN_EVALS} of {len(evals)} evaluations", style="bright_black")
    print_table(console, table)
