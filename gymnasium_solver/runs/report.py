"""report.md and report.html: one page about a run, from `runs/query.py` only.

`write_report(run.path)` is called at the end of training; calling it again updates both. The page
for the browser is in `runs/report_page.py`.
"""

import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gymnasium_solver.printable import markdown_text, printable
from gymnasium_solver.runs.alerts.alert import AlertRecord
from gymnasium_solver.runs.files import cannot_write, write_atomic
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.report_facts import Facts, read_facts
from gymnasium_solver.runs.report_page import run_page
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import (
    ScoreText,
    eval_command,
    result_rows,
    resume_command,
    train_command,
    verdict_words,
)

_FILES = {
    "config.yaml": "the resolved config; train from it to repeat the run",
    "meta.json": "command, versions, git commit, machine, status",
    "git.diff": "uncommitted changes of the working directory at the start",
    "metrics.jsonl": "one row per epoch",
    "events.jsonl": "evaluations, tests, checkpoints, changed settings",
    "run.log": "console output",
    "checkpoints": "weights and training state; `best` and `last` point into it",
}


def write_report(run_dir: Path) -> Path:
    """Write `report.md` and `report.html` into a run folder and return the path of the first."""
    run = Run(run_dir)
    facts = read_facts(run)
    try:
        write_atomic(run.report_path, markdown(facts).encode(errors="replace"))
        write_atomic(run.page_path, run_page(facts).encode(errors="replace"))
    except OSError as error:
        raise cannot_write("the report", run.path, error) from error
    return run.report_path


def markdown(facts: Facts) -> str:
    summary = facts.summary
    events = [*facts.validations, *facts.failed_tests, *facts.tests]
    score = ScoreText(summary.threshold, [event.get("mean") for event in events])
    sections = [
        _what(summary),
        _result(facts, score),
        _alerts(facts.alerts),
        _config(facts),
        _reproduce(summary, facts.meta),
        _evaluations("Validation", facts.validations, score),
        _evaluations("Failed tests", facts.failed_tests, score) if facts.failed_tests else "",
        _checkpoints(summary, score),
        _time(facts),
        _videos(facts),
        _files(facts.run),
        _next(summary),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _what(run: RunSummary) -> str:
    config = run.config or {}
    name = f"{run.env_id}:{run.variant or run.algo_id}"
    lines = [f"# {markdown_text(name)}: {markdown_text(verdict_words(run))}", ""]
    lines += [f"Run {_inline(run.id)}, started {markdown_text(run.created_at)}."]
    if config.get("description"):
        lines += ["", markdown_text(config["description"])]
    return "\n".join(lines)


def _result(facts: Facts, score: ScoreText) -> str:
    rows, why = result_rows(facts.summary, facts.tests, score)
    shown = [[what, markdown_text(value)] for what, value in rows]
    return "## Result\n\n" + _table(["", ""], shown) + (f"\n\n{why}" if why else "")


def _alerts(alerts: list[AlertRecord]) -> str:
    if not alerts:
        return ""
    rows = [
        [_inline(a.name), *map(markdown_text, (a.span, a.text, a.meaning, a.advice))]
        for a in alerts
    ]
    heads = ["alert", "when", "seen", "what it usually means", "what to try"]
    return "## Alerts\n\n" + _table(heads, rows)


def _config(facts: Facts) -> str:
    if not facts.changed:
        return ""
    rows = [
        [_inline(name), markdown_text(old), markdown_text(new)]
        for name, (old, new) in facts.changed.items()
    ]
    text = "Fields that differ from the shipped config."
    return f"## Config\n\n{text}\n\n" + _table(["field", "shipped", "this run"], rows)


def _time(facts: Facts) -> str:
    shares = sorted(facts.time_shares.items(), key=lambda item: -item[1])
    rows = [[name, f"{share:.1%}"] for name, share in shares if share >= 0.0005]
    return "## Time\n\n" + _table(["part", "share of the time"], rows) if rows else ""


def _videos(facts: Facts) -> str:
    links = [f"- [{markdown_text(path.name)}](videos/{quote(path.name)})" for path in facts.videos]
    return "## Videos\n\n" + "\n".join(links) if links else ""


def _reproduce(run: RunSummary, meta: dict[str, Any]) -> str:
    lines = ["## Reproduce", "", _code([train_command(run)]), "", f"The seed is {run.seed}."]
    if meta.get("command"):
        lines += ["", "Started with", "", _code([shlex.join(meta["command"])])]
    versions = meta.get("versions") or {}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    lines += ["", f"Versions: {markdown_text(', '.join(known))}."]
    git = meta.get("git")
    if git:
        dirty = ", with the changes in `git.diff`" if git.get("dirty") else ""
        lines += ["", f"Git commit {_inline(git.get('commit'))}{dirty}."]
    machine = meta.get("machine") or {}
    cpus = f"{machine.get('cpu')}, {machine.get('cpu_count')} CPUs"
    lines += ["", f"Machine: {markdown_text(cpus)}."]
    resumed = [f"{entry['from_env_steps']:,}" for entry in meta.get("resumed") or []]
    if resumed:
        lines += ["", f"Resumed from env steps {', '.join(resumed)}."]
    return "\n".join(lines)


def _evaluations(title: str, events: list[dict[str, Any]], score: ScoreText) -> str:
    if not events:
        return f"## {title}\n\nNone."
    rows = [
        [
            f"{event.get('env_steps', 0):,}",
            *(score(event.get(name)) for name in ("mean", "std", "min", "max")),
            _length(event.get("length_mean")),
            str(event.get("episodes", "-")),
        ]
        for event in events
    ]
    heads = ["env steps", "mean", "std", "min", "max", "length", "episodes"]
    return f"## {title}\n\n" + _table(heads, rows)


def _checkpoints(run: RunSummary, score: ScoreText) -> str:
    if not run.checkpoints:
        return ""
    rows = []
    for checkpoint in run.checkpoints:
        marks = ["@best"] * checkpoint["best"] + ["@last"] * checkpoint["last"]
        rows.append([str(checkpoint["env_steps"]), score(checkpoint["score"]), " ".join(marks)])
    return "## Checkpoints\n\n" + _table(["env steps", "validation", ""], rows)


def _files(run: Run) -> str:
    rows = [[f"`{name}`", text] for name, text in _FILES.items() if (run.path / name).exists()]
    return "## Files\n\n" + _table(["file", "what it holds"], rows)


def _next(run: RunSummary) -> str:
    commands = [f"gsolve run {run.id}", f"gsolve plot {run.id}"]
    if run.checkpoints:
        commands.insert(0, eval_command(run))
        commands.append(resume_command(run))
    return "## Next\n\n" + _code(commands)


def _length(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _code(lines: list[str]) -> str:
    """A block of code: its fence is longer than any row of backticks inside."""
    shown = [printable(line) for line in lines]
    longest = max((len(row) for line in shown for row in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *shown, fence])


def _inline(text: object) -> str:
    shown = printable(text).replace("`", "").replace("|", "\\|")
    return f"`{shown}`"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; what comes from files was escaped by the caller."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
