"""report.md: one page about a run, from `runs/query.py` only.

`write_report(run.path)` is called at the end of training; calling it again updates the page.
"""

import shlex
from pathlib import Path
from typing import Any

from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.query import RunSummary, TestScore, test_score
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import (
    ScoreText,
    disagreement,
    eval_command,
    is_python_env,
    resume_command,
    stopped,
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
    """Write `report.md` into a run folder and return its path."""
    run = Run(run_dir)
    summary, meta = query.get_run(run, include_config=True), query.get_meta(run)
    evaluations = query.get_events(run, "eval")
    by_stage = {
        stage: [event for event in evaluations if event.get("stage", "val") == stage]
        for stage in ("val", "failed_test", "test")
    }
    score = ScoreText(summary.threshold, [event.get("mean") for event in evaluations])
    sections = [
        _what(summary),
        _result(summary, by_stage["test"], score),
        _reproduce(summary, meta),
        _evaluations("Validation", by_stage["val"], score),
        _evaluations("Failed tests", by_stage["failed_test"], score)
        if by_stage["failed_test"]
        else "",
        _checkpoints(summary, score),
        _files(run),
        _next(summary),
    ]
    write_atomic(run.report_path, ("\n\n".join(filter(None, sections)) + "\n").encode())
    return run.report_path


def _what(run: RunSummary) -> str:
    config = run.config or {}
    name = f"{run.env_id}:{run.variant or run.algo_id}"
    lines = [f"# {name}: {_verdict(run)}", "", f"Run `{run.id}`, started {run.created_at}."]
    if config.get("description"):
        lines += ["", str(config["description"])]
    return "\n".join(lines)


def _verdict(run: RunSummary) -> str:
    if run.status != "finished":
        return f"{run.status}, solved" if run.solved else run.status
    if run.solved:
        return "solved"
    return "finished" if run.threshold is None else "not solved"


def _result(run: RunSummary, tests: list[dict[str, Any]], score: ScoreText) -> str:
    best = run.best
    rows = [
        ("status", run.status),
        ("stopped because", stopped(run, "unknown")),
        ("solved", {True: "yes", False: "no", None: "not known"}[run.solved]),
        ("threshold", score.threshold),
        ("best validation", f"{score(best['score'])} at {best['env_steps']:,}" if best else "-"),
        ("env steps", f"{run.env_steps:,}"),
        ("epochs", f"{run.epoch:,}"),
        ("episodes", f"{run.episodes:,}"),
        ("training time", f"{run.wall_s:,.1f} s"),
        ("env steps per second", f"{run.env_steps / run.wall_s:,.0f}" if run.wall_s else "-"),
    ]
    why = None
    if run.test is not None:
        newest = {test.get("greedy"): test for test in tests}
        others = [test for greedy, test in newest.items() if greedy != run.test["greedy"]]
        shown = [run.test, *(test_score(test) for test in others)]
        rows[3:3] = [(f"test, {_actions(test)}", score.test(test)) for test in shown]
        why = disagreement([newest.get(run.test["greedy"], {}), *others])
    protocol = tests[-1].get("protocol") if tests else None
    if protocol:
        text = ", ".join(f"{name} {value}" for name, value in protocol.items() if value is not None)
        rows.append(("protocol of all scores", text))
    note = f"\n\n{why[0].upper()}{why[1:]}." if why else ""
    return "## Result\n\n" + _table(["", ""], rows) + note


def _reproduce(run: RunSummary, meta: dict[str, Any]) -> str:
    folder = f"{Path(run.path).parent.name}/{run.id}"
    commands = [f"gsolve train {shlex.quote(folder + '/config.yaml')}"]
    if is_python_env(run.env_id):
        commands = [f'python: gs.train("{folder}/config.yaml", env=...)']
    lines = ["## Reproduce", "", _code(commands), "", f"The seed is {run.seed}."]
    if meta.get("command"):
        lines += ["", "Started with", "", _code([shlex.join(meta["command"])])]
    versions = meta.get("versions") or {}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    lines += ["", f"Versions: {', '.join(known)}."]
    git = meta.get("git")
    if git:
        dirty = ", with the changes in `git.diff`" if git.get("dirty") else ""
        lines += ["", f"Git commit `{git['commit']}`{dirty}."]
    machine = meta.get("machine") or {}
    lines += ["", f"Machine: {machine.get('cpu')}, {machine.get('cpu_count')} CPUs."]
    resumed = [f"{entry['from_env_steps']:,}" for entry in meta.get("resumed") or []]
    if resumed:
        lines += ["", f"Resumed from env steps {', '.join(resumed)}."]
    return "\n".join(lines)


def _actions(test: TestScore) -> str:
    return "greedy actions" if test["greedy"] else "sampled actions"


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
    return "\n".join(["```", *lines, "```"])


def _table(heads: list[str], rows: list[Any]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
