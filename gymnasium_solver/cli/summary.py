"""The result of a run as text, for the end of `gsolve train` and for `gsolve run`."""

import textwrap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.colours import GREEN, ORANGE
from gymnasium_solver.cli.metric_table import table_lines
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.words import ScoreText, disagreement, next_steps, stopped, task_rows

if TYPE_CHECKING:
    from gymnasium_solver.cli.live_state import State
    from gymnasium_solver.runs.query import RunSummary
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult


INDENT = 11  # of the text of a row


def score_text(summary: "RunSummary") -> ScoreText:
    """The score format of this run."""
    scores = [found["score"] for found in (summary.best,) if found]
    return ScoreText(summary.threshold, scores + [test["mean"] for test in (summary.test,) if test])


def verdict(summary: "RunSummary") -> Text:
    """The run in one line: solved, or its best score. Only a held-out test can make it solved."""
    threshold, text = summary.threshold, score_text(summary)
    score = _tested(summary, text) if summary.test else _untested(summary, text)
    after = f"{summary.env_steps:,} env steps, {fmt.duration(summary.wall_s)}"
    if summary.solved and summary.status == "finished":
        return Text.assemble(("SOLVED", f"bold {GREEN}"), f"  {score}  in {after}")
    word = summary.status.upper()
    if summary.status == "finished":
        word = "finished" if threshold is None else "not solved"
    star = (" ★ solved" if summary.solved else "", f"bold {GREEN}")
    return Text.assemble((word, f"bold {ORANGE}"), star, f"  {score}  after {after}")


def _tested(summary: "RunSummary", text: ScoreText) -> str:
    """test 498.0 ± 0.6 (standard error, 100 episodes) ≥ 475"""
    assert summary.test is not None
    aim = "" if summary.threshold is None else f" {'≥' if summary.solved else '<'} {text.threshold}"
    return f"test {text.test(summary.test)}{aim}"


def _untested(summary: "RunSummary", text: ScoreText) -> str:
    best = f"best val {text(summary.best['score'])}" if summary.best else "no evaluation yet"
    aim = "" if summary.threshold is None else f" (solved at a test mean of {text.threshold})"
    return f"{best}, not tested{aim}"


def measured_from_random(summary: "RunSummary") -> dict[str, float] | None:
    """The run's score on a scale from random actions (0) to the target (1), and both ends.

    Uses the test score or, without a test, the best validation score. None without a baseline.
    """
    from pathlib import Path

    from gymnasium_solver.envs.baselines import game_settings, random_baseline
    from gymnasium_solver.errors import RunError
    from gymnasium_solver.runs.query import get_config
    from gymnasium_solver.runs.run import Run

    try:
        settings = game_settings(get_config(Run(Path(summary.path))))
    except RunError:
        return None  # a damaged folder still gets a summary
    baseline = random_baseline(summary.env_id, settings)
    if summary.test is not None:
        mean = summary.test["mean"]
    elif summary.best is not None:
        mean = summary.best["score"]
    else:
        return None
    if baseline is None:
        return None
    target = baseline.target if baseline.target is not None else summary.threshold
    score = baseline.normalize(mean, target)
    if score is None or target is None:
        return None
    return {"score": score, "random": baseline.mean, "target": target}


def normalized_row(summary: "RunSummary") -> list[tuple[str, str]]:
    """(label, text) of the normalised score, if available."""
    found = measured_from_random(summary)
    if found is None:
        return []
    score = score_text(summary)
    ends = f"0 is random actions ({score(found['random'])}) and 1 is {found['target']:,g}"
    return [("relative", f"{found['score']:.2f}, where {ends}")]


def result(
    summary: "RunSummary", final: "dict[str, EvalResult]", runs_dir: str | None = None
) -> list[Text]:
    """The full result of a run. `runs_dir`: value of the flag, if given."""
    score = score_text(summary)
    rows = [("stopped", stopped(summary, "-"))]
    if summary.best:
        rows.append(
            (
                "best",
                f"val {score(summary.best['score'])} at"
                f" {summary.best['env_steps']:,} env steps, in checkpoints/best",
            )
        )
    rows += normalized_row(summary)
    for mode, test in final.items():
        rows.append(
            (
                "test" if mode == next(iter(final)) else "",
                f"{mode:<8} {score.test(test.score())}, std {score(test.std)}, seed {test.seed}",
            )
        )
        rows += [("", f"  {name}: {text}") for name, text in task_rows(test.to_dict())]
    if why := why_modes_differ(summary, [test.to_dict() for test in final.values()]):
        rows.append(("", why))
    rows += alert_rows(summary)
    rows.append(("folder", str(summary.path)))
    rows += next_rows(summary, runs_dir)
    body = [Text.assemble((f"  {key:<9}", "bright_black"), text) for key, text in rows]
    return [Text(""), verdict(summary), *body]


def alert_rows(summary: "RunSummary") -> list[tuple[str, str]]:
    """The alerts of the run with what to try, as (label, text)."""
    from pathlib import Path

    from gymnasium_solver.runs.query import get_alerts
    from gymnasium_solver.runs.run import Run

    rows: list[tuple[str, str]] = []
    for record in get_alerts(Run(Path(summary.path))):
        text = f"{record.name} {record.span}: {record.text}"
        rows.append(("" if rows else "alerts", printable(text)))
        if record.is_active and record.advice:
            rows.append(("", printable(f"  try {record.advice}")))
    return rows


def why_modes_differ(summary: "RunSummary", tests: list[dict[str, Any]]) -> str | None:
    """One sentence if the greedy and the sampled test differ clearly."""
    is_judged_greedy = summary.test is None or summary.test["greedy"]
    return disagreement(sorted(tests, key=lambda test: test["greedy"] != is_judged_greedy))


def run_table(state: "State", width: int = 96) -> list[Text]:
    """Last, lowest and highest value and the history of every shown metric."""
    lines = table_lines(state, width, room=10_000)
    rows = [Text.assemble(*line) for line in lines]
    for row in rows:
        row.rstrip()
    return [Text(""), *rows] if rows else []


def broken_off(run: "Run", runs_dir: str | None = None) -> list[Text]:
    """Summary of a run that ended with an error; the caller prints the error."""
    from gymnasium_solver.errors import RunError
    from gymnasium_solver.runs.query import get_run

    try:
        summary = get_run(run)
    except RunError:  # the folder is gone
        return []
    lines = [Text(""), verdict(summary)]
    rows = [("folder", str(summary.path))]
    if summary.checkpoints:
        rows += next_rows(summary, runs_dir)
    return lines + [Text.assemble((f"  {key:<9}", "bright_black"), text) for key, text in rows]


def hanging(line: Text, width: int) -> list[Text]:
    """A line of a result wrapped at words to `width`, below its text. Commands and paths stay
    whole, so that they can be copied."""
    label, text = line[:INDENT], line[INDENT:]
    is_row = line.plain.startswith("  ")
    is_copied = label.plain.strip() in ("folder", "next") or text.plain.startswith("gsolve ")
    if line.cell_len <= width or (is_row and is_copied):
        return [line]
    if not is_row:
        label, text = Text(""), line
    first, *rest = textwrap.wrap(text.plain, max(20, width - (INDENT if is_row else 2)))
    start = text[: len(first)]
    indent = " " * (INDENT if is_row else 2)
    return [Text.assemble(label, start), *(Text(indent + part) for part in rest)]


def quiet_result(summary: "RunSummary", final: "dict[str, EvalResult]") -> list[Text]:
    score = score_text(summary)
    line = verdict(summary)
    for mode, test in final.items():  # the verdict shows the other one
        if summary.test is None or test.greedy != summary.test["greedy"]:
            line.append(f"  {mode}: {score(test.mean)}")
    return [line, Text(str(summary.path))]


def next_rows(summary: "RunSummary", runs_dir: str | None = None) -> list[tuple[str, str]]:
    """The next commands, as (label, text)."""
    steps = next_steps(summary, runs_dir)
    return [("next" if i == 0 else "", line) for i, line in enumerate(steps)]
