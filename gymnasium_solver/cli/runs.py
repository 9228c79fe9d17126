"""Verbs that look at runs: `runs` lists them, `run` shows one, `metrics` tells what they log."""

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli import summary
from gymnasium_solver.cli.flags import NO_VALUE, Args, UsageError, verb
from gymnasium_solver.paths import output_file, writing_file
from gymnasium_solver.printable import printable, printable_lines
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import curves, write_csv
from gymnasium_solver.runs.metrics import METRICS, aliases_of, canonical, describe, find_metrics
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.select import Config, check_column, value_of
from gymnasium_solver.runs.store import RunStore
from gymnasium_solver.runs.words import ScoreText, stopped

FIRST_TO_GO = ("note", "tags", "best val", "time", "env steps", "test / solved")
SHORTEST_ID = 24  # "CartPole-v1-…040424-ab12"
LONGEST_NOTE = 40
WATCH_SECONDS = 2.0
SHOWN_EVALS = 10
SPARK = 30


@verb("""
runs: List all runs, newest first.

[FILTER...]           words that all occur in id, environment, algorithm, status or a tag (solved:
                      solved runs), and conditions such as test>400, seed=1, tag=paper, or on any
                      config field
--limit INT           show only the first N
--sort FIELD          highest first, -FIELD lowest first: test, val, steps, time, fps, seed,
                      created, or a config field (default: newest first)
--columns FIELD...    show these instead: env, algo, variant, seed, status, test, val, steps, time,
                      fps, tag, note, or config fields
--watch               show the table again every two seconds until Ctrl-C
--json --runs-dir

examples:
  gsolve runs
  gsolve runs CartPole --limit 5
  gsolve runs solved tag=paper
  gsolve runs 'test>400' 'policy_lr<0.001' --sort test
  gsolve runs --columns seed test policy_lr hidden_dims
  gsolve runs --watch
""")
def runs(args: Args) -> None:
    if args.watch and args.json:
        raise UsageError("--watch is for people, --json for programs: use one of them")
    store, console = RunStore(args.root()), out.make_console()

    def found() -> list[RunSummary]:
        return store.select(args.filters, args.sort)[: args.limit]

    def shown() -> str | Table | out.PlainRows:
        listed = found()
        if not listed:
            text = " ".join(args.filters)
            what = f"no run matches '{text}'" if text else "no runs"
            return f"{what} in {store.root}; create one with gsolve train <env>:<variant>"
        if args.columns:
            return chosen_table(listed, args.columns, store.config)
        return runs_table(console, listed)

    if args.watch:
        watch(console, shown)
    elif not out.told_json(args, lambda: [run.to_dict() for run in found()]):
        console.print(shown())


def watch(console: Console, make: Callable[[], RenderableType]) -> None:
    """Show what `make` returns, again and again, until Ctrl-C."""
    try:
        with Live(make(), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(make(), refresh=True)
    except KeyboardInterrupt:
        return


def chosen_table(listed: list[RunSummary], names: Sequence[str], config: Config) -> Table:
    """The id and the fields that were asked for."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.6g}"
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = ", ".join(value)
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return "-" if value is None else printable(text)

    asked = [name for name in dict.fromkeys(names) if name not in ("run", "id")]
    for name in asked:
        check_column(name, listed, config)
    table = out.table("run", *asked)
    for run in listed:
        table.add_row(Text(run.id), *(Text(cell(value_of(run, name, config))) for name in asked))
    return table


def runs_table(console: Console, listed: list[RunSummary]) -> out.PlainRows:
    """One line per run. On a narrow terminal ids are shortened in the middle, then whole columns
    are dropped; a status is never cut."""
    columns = _columns(listed)
    widths = {name: column.width for name, column in columns.items()}
    gaps = 2 * (len(widths) - 1)
    for name in FIRST_TO_GO:
        can_save = max(0, widths["run"] - SHORTEST_ID)
        if name in widths and sum(widths.values()) + gaps - can_save > console.width:
            del widths[name], columns[name]
            gaps -= 2
    excess = max(0, sum(widths.values()) + gaps - console.width)
    id_width = max(widths["run"] - excess, SHORTEST_ID)
    if id_width < widths["run"]:  # ids differ at the end: time, hex
        cells = [
            (f"{i[: id_width - 12]}…{i[-11:]}" if len(i) > id_width else i, style)
            for i, style in columns["run"].cells
        ]
        columns["run"].cells = cells
    return out.PlainRows(list(columns.values()))


def _columns(listed: list[RunSummary]) -> dict[str, out.Column]:
    scores = [summary.score_text(run) for run in listed]
    columns: dict[str, list[str]] = {
        name: [] for name in ("run", "status", "env steps", "best val", "test / solved", "time")
    }
    for run, score in zip(listed, scores, strict=True):
        aim = "" if run.threshold is None else f" / {score.threshold}"
        columns["run"].append(run.id)
        columns["env steps"].append(f"{run.env_steps:,}")
        columns["best val"].append(score(run.best["score"] if run.best else None))
        columns["test / solved"].append(f"{score(run.test['mean'] if run.test else None)}{aim}")
        columns["time"].append(out.duration(run.wall_s))
    if any(run.tags for run in listed):
        columns["tags"] = [", ".join(run.tags) for run in listed]
    if any(run.note for run in listed):
        notes = [run.note.partition("\n") for run in listed]
        columns["note"] = [
            first if not rest and len(first) <= LONGEST_NOTE else first[: LONGEST_NOTE - 1] + "…"
            for first, rest, _ in notes
        ]
    left = ("run", "status", "tags", "note")
    made = {
        name: out.Column(name, [(printable(text), "none") for text in texts], name not in left)
        for name, texts in columns.items()
    }
    statuses = [out.status_text(run) for run in listed]
    made["status"].cells = [(status.plain, str(status.style)) for status in statuses]
    return made


@verb("""
run: Show one run in detail.

RUN
--log INT              show only the last N lines of its run.log
--metrics [NAME...]    show its metrics: the last, lowest, highest and mean value; NAME may have
                       wildcards or be the name in another library (gsolve metrics lists all)
--csv [FILE]           write its metrics, or those of --metrics, as CSV to FILE or to the screen
--json --runs-dir

examples:
  gsolve run @last
  gsolve run @last --log 20
  gsolve run @last --metrics approx_kl 'train/opt/loss/*'
  gsolve run @last --csv metrics.csv
""")
def run(args: Args) -> None:
    root = args.root()
    if args.log is not None:
        lines = query.get_log(args.run, lines=args.log, root=root)
        if not out.told_json(args, lines):
            print(printable_lines("\n".join(lines)))
    elif args.csv is not None or args.metrics is not None:
        _show_metrics(args, root)
    else:
        details = query.get_details(args.run, root)
        more = {
            "normalized": summary.measured_from_random(details.summary),
            "evals": details.evaluations,
            "alerts": [alert.to_dict() for alert in details.alerts],
        }
        if not out.told_json(args, details.summary.to_dict() | more):
            print_run(details, args.runs_dir)


def print_run(details: query.RunDetails, runs_dir: str | None = None) -> None:
    run, val = details.summary, details.validations
    console = out.make_console()
    console.print(Text.assemble((run.id, "bold"), "  ", out.status_text(run)))
    console.print(summary.verdict(run))
    rows: list[tuple[str, str | Text]] = [
        ("env", run.env_id),
        ("agent", f"{run.algo_id}, variant {run.variant}, seed {run.seed}"),
        ("created", run.created_at),
        ("done", f"{run.env_steps:,} env steps, {run.epoch:,} epochs, {run.episodes:,} episodes"),
        ("stopped", stopped(run, "not yet")),
    ]
    scores = [event["mean"] for event in val if event.get("mean") is not None]
    if scores:
        rows.append(("val", f"{out.sparkline(scores, 40)}  {len(scores)} evaluations"))
    score = ScoreText(run.threshold, scores)
    newest = {bool(event.get("greedy")): event for event in details.tests}
    tests = [test for _, test in sorted(newest.items(), reverse=True)]
    rows += summary.result_rows(run, tests, score, len(details.failed_tests))
    console.print(out.pairs(rows))
    for label, command in summary.next_rows(run, runs_dir):  # whole, so that they can be copied
        console.say(Text.assemble((f"  {label:<9}", out.GREY), command))
    if run.checkpoints:
        table = out.table(">  checkpoint", ">val", "")
        for one in run.checkpoints:
            marks = " ".join(f"@{mark}" for mark in ("best", "last") if one[mark])
            table.add_row(f"{one['env_steps']}", score(one["score"]), marks)
        console.print()
        console.print(table)
    if val:
        table = out.table(">  val at", ">mean", ">std", ">min", ">max", ">length", ">episodes")
        for event in val[-SHOWN_EVALS:]:
            figures = (score(event.get(name)) for name in ("mean", "std", "min", "max"))
            length, n = out.number(event.get("length_mean"), 1), out.number(event.get("episodes"))
            table.add_row(f"{event['env_steps']:,}", *figures, length, n)
        console.print()
        if len(val) > SHOWN_EVALS:
            console.print(f"  the last {SHOWN_EVALS} of {len(val)} evaluations", style=out.GREY)
        console.print(table)


def _show_metrics(args: Args, root: Path) -> None:
    rows, names = query.get_rows(args.run, root), args.metrics or None
    if not rows:
        raise UsageError(f"no metrics are logged yet in {args.run}")
    if args.csv is None:
        found = curves(rows, names)
        table = out.table("=metric", ">last", ">min", ">max", ">mean", "", "unit")
        for name, points in found.items():
            metric = describe(name)
            values = [float(y) for _, y in points if isinstance(y, int | float)]
            numbers: list[float | None] = [None] * 4
            if values:
                numbers = [values[-1], min(values), max(values), sum(values) / len(values)]
            shown = [out.number(x, metric.precision) for x in numbers]
            table.add_row(Text(name), *shown, out.sparkline(values, SPARK), metric.unit)
        out.tell(args, found, table)
        return
    text = io.StringIO(newline="")
    n_lines = write_csv(rows, text, names)
    if args.csv == NO_VALUE:
        print(printable_lines(text.getvalue().replace("\r\n", "\n")), end="")
        return
    path = output_file(args.csv, "the CSV file")
    with writing_file("the CSV file", path):
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    print(f"{path}: {n_lines:,} rows")


@verb("""
metrics: List the metrics that runs log: meaning, unit and which direction is better.
<...> stands for any name; details are not in every row.

[FILTER...]     words of a name or meaning, or a name in another library
--json

examples:
  gsolve metrics
  gsolve metrics kl
  gsolve metrics rollout/ep_rew_mean
""")
def metrics(args: Args) -> int:
    text = " ".join(args.filters)
    found = find_metrics(text)
    alias = canonical(text, METRICS) if text else None
    if alias is not None and METRICS[alias] not in found:
        found.insert(0, METRICS[alias])
    if args.json:
        from gymnasium_solver.runs.alerts.judge import RULES

        alerts = {m.name: [r.name for r in RULES.values() if r.metric == m.name] for m in found}
        more = [{"alerts": alerts[m.name], "aliases": aliases_of(m.name)} for m in found]
        out.print_json([asdict(m) | facts for m, facts in zip(found, more, strict=True)])
    elif not found:
        out.complain(f"no metric matches '{text}'. gsolve metrics lists all")
    else:
        table = out.table("=metric", "unit", "better", "meaning")
        better = {"up": "higher", "down": "lower", None: ""}
        groups = dict.fromkeys(metric.group for metric in found)
        for i, group in enumerate(groups):
            if i:
                table.add_row()
            for m in (metric for metric in found if metric.group == group):
                meaning = m.description + " (details)" * m.is_detail
                table.add_row(Text(m.name), m.unit, better[m.better], meaning)
        out.show(table)
    return 0 if found else 1
