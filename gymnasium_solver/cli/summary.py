"""The result of a run as text: at the end of `gsolve train`, in `gsolve run` and `gsolve runs`."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.output import GREEN, GREY, ORANGE
from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.query import (
    RunSummary,
    get_alerts,
    get_config,
    get_run,
    test_score,
    tracker_urls,
)
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText, disagreement, next_steps, stopped, task_rows

if TYPE_CHECKING:
    from gymnasium_solver.training.observer import EvalResult

INDENT = 11  # of the text of a row
COPIED = ("gsolve ", "https://")


def score_text(run: RunSummary) -> ScoreText:
    """The score format of this run."""
    return ScoreText(run.threshold, [run.best_score, run.test_mean])


def verdict(run: RunSummary) -> Text:
    """The run in one line: solved, or its best score. Only a held-out test can make it solved."""
    text = score_text(run)
    if run.test:  # test 498.0 ± 0.6 (standard error, 100 episodes) ≥ 475
        aim = "" if run.threshold is None else f" {'≥' if run.solved else '<'} {text.threshold}"
        score = f"test {text.test(run.test)}{aim}"
    else:
        best = f"best val {text(run.best['score'])}" if run.best else "no evaluation yet"
        aim = "" if run.threshold is None else f" (solved at a test mean of {text.threshold})"
        score = f"{best}, not tested{aim}"
    after = f"{run.env_steps:,} env steps, {out.duration(run.wall_s)}"
    if run.solved and run.status == "finished":
        return Text.assemble(("SOLVED", f"bold {GREEN}"), f"  {score}  in {after}")
    word = run.status.upper()
    if run.status == "finished":
        word = "finished" if run.threshold is None else "not solved"
    star = (" ★ solved" if run.solved else "", f"bold {GREEN}")
    return Text.assemble((word, f"bold {ORANGE}"), star, f"  {score}  after {after}")


def measured_from_random(run: RunSummary) -> dict[str, float] | None:
    """The run's score on a scale from random actions (0) to the target (1), and both ends.

    Uses the test score or, without a test, the best validation score. None without a baseline."""
    from gymnasium_solver.envs.baselines import game_settings, random_baseline

    try:
        settings = game_settings(get_config(Run(Path(run.path))))
    except RunError:
        return None  # a damaged folder still gets a summary
    baseline = random_baseline(run.env_id, settings)
    mean = run.score
    if baseline is None or mean is None:
        return None
    target = baseline.target if baseline.target is not None else run.threshold
    score = baseline.normalize(mean, target)
    if score is None or target is None:
        return None
    return {"score": score, "random": baseline.mean, "target": target}


def result_rows(
    run: RunSummary, tests: Sequence[Mapping[str, Any]], score: ScoreText, n_failed: int = 0
) -> list[tuple[str, str]]:
    """(label, text) of what came out: the score on a scale from random actions, the newest test of
    each kind, how many tests failed before, the alerts with what to try, and the folder."""
    rows = []
    if found := measured_from_random(run):
        ends = f"0 is random actions ({score(found['random'])}) and 1 is {found['target']:,g}"
        rows.append(("relative", f"{found['score']:.2f}, where {ends}"))
    for i, test in enumerate(tests):
        kind = "greedy" if test.get("greedy") else "sampled"
        text = f"{kind:<8} {score.test(test_score(test))}, std {score(test.get('std'))}"
        rows.append(("" if i else "test", f"{text}, seed {test.get('seed')}"))
        rows += [("", f"  {name}: {text}") for name, text in task_rows(test)]
    if run.test_note:
        rows.append(("", run.test_note))
    is_judged_greedy = run.test is None or run.test["greedy"]
    judged_first = sorted(tests, key=lambda test: test.get("greedy") != is_judged_greedy)
    if why := disagreement(judged_first):
        rows.append(("", why))
    if n_failed:
        rows.append(("", f"{n_failed} earlier test{'s' * (n_failed > 1)} failed"))
    for i, alert in enumerate(get_alerts(Run(Path(run.path)))):
        text = printable(f"{alert.name} {alert.span}: {alert.text}")
        rows.append(("" if i else "alerts", text))
        if alert.is_active and alert.advice:
            rows.append(("", printable(f"  try {alert.advice}")))
    return [*rows, *tracker_urls(Run(Path(run.path))).items(), ("folder", str(run.path))]


def next_rows(run: RunSummary, runs_dir: str | None = None) -> list[tuple[str, str]]:
    """The next commands, as (label, text). `runs_dir`: value of the flag, if given."""
    return [("" if i else "next", line) for i, line in enumerate(next_steps(run, runs_dir))]


# --- the end of a training


def result(
    run: RunSummary, final: "Mapping[str, EvalResult]", runs_dir: str | None = None
) -> list[Text]:
    """The full result of a run."""
    score = score_text(run)
    rows = [("stopped", stopped(run, "-"))]
    if run.best:
        best = f"val {score(run.best['score'])} at {run.best['env_steps']:,} env steps"
        rows.append(("best", f"{best}, in checkpoints/best"))
    rows += result_rows(run, [test.to_dict() for test in final.values()], score)
    return _page(run, rows + next_rows(run, runs_dir))


def _page(run: RunSummary, rows: Sequence[tuple[str, str]]) -> list[Text]:
    folder = Path(run.path).absolute().as_uri()
    body = [
        Text.assemble(
            (f"  {key:<9}", GREY), (text, out.linked("", folder if key == "folder" else text))
        )
        for key, text in rows
    ]
    return [Text(""), verdict(run), *body]


def broken_off(folder: Run, runs_dir: str | None = None) -> list[Text]:
    """The result of a run that ended with an error; the caller prints the error."""
    try:
        run = get_run(folder)
    except RunError:  # the folder is gone
        return []
    more = next_rows(run, runs_dir) if run.checkpoints else []
    return _page(run, [("folder", str(run.path)), *more])


def quiet_result(run: RunSummary, final: "Mapping[str, EvalResult]") -> list[Text]:
    score, line = score_text(run), verdict(run)
    for mode, test in final.items():  # the verdict shows the other one
        if run.test is None or test.greedy != run.test["greedy"]:
            line.append(f"  {mode}: {score(test.mean)}")
    return [line, Text(str(run.path))]


def hanging(line: Text, width: int) -> list[Text]:
    """A line of a result wrapped at words to `width`, below its text. Commands and paths stay
    whole, so that they can be copied."""
    label, text = line[:INDENT], line[INDENT:]
    is_row = line.plain.startswith("  ")
    is_copied = label.plain.strip() in ("folder", "next") or text.plain.startswith(COPIED)
    if line.cell_len <= width or (is_row and is_copied):
        return [line]
    if not is_row:
        label, text = Text(""), line
    indent = INDENT if is_row else 2
    first, *rest = textwrap.wrap(text.plain, max(20, width - indent))
    return [Text.assemble(label, text[: len(first)]), *(Text(" " * indent + p) for p in rest)]
