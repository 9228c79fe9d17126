"""Texts about a run for the console and report.md: scores, stop reasons, next commands.

score = ScoreText(run.threshold)
score(0.74), score.threshold      # "0.740", "0.7" where 0.7 counts as solved
"""

import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.runs.summary import RunSummary, TestScore, test_score

STOPPED = {
    "max_env_steps": "the env step budget is used up",
    "max_epochs": "the epoch budget is used up",
    "max_minutes": "the time budget is used up",
    "solved": "a held-out test reached the threshold",
    "goal_reached_eval": "an evaluation reached the goal",
    "goal_reached_train": "the training episodes reached the goal",
    "interrupted": "it was interrupted",
    "requested": "a stop was requested",
    "diverged": "a value was not finite",
    "error": "an error ended it",
}
OF_THE_ENV = "from the environment"
"""Detail of `diverged`: the environment returned the value that was not finite."""
MOST_DECIMALS = 6
# Greedy and sampled actions disagree if their means differ by more than both of these: standard
# errors, and a share of the range of returns and of the scores themselves.
CLEAR_STDERRS, CLEAR_SHARE = 2.0, 0.1


def stopped(run: RunSummary, otherwise: str) -> str:
    """Why a run ended, as text; `otherwise` if it has not ended."""
    reason = run.stop_reason or otherwise
    detail = f" ({run.stop_detail})" if run.stop_detail else ""
    return STOPPED.get(reason, reason) + detail


class ScoreText:
    """Formats scores with the decimals of the threshold, or without one of the largest score given:
    three significant digits, at least one decimal."""

    def __init__(
        self, threshold: float | None, scores: float | Iterable[float | None] | None = None
    ) -> None:
        given = scores if isinstance(scores, Iterable) else [scores]
        sizes = [abs(x) for x in ([threshold] if threshold else given) if x is not None]
        scale = max((size for size in sizes if math.isfinite(size)), default=0.0)
        magnitude = math.floor(math.log10(scale)) if scale else 1
        self.decimals = min(max(1, 2 - magnitude), MOST_DECIMALS)
        text = self(threshold)
        self.threshold = text.rstrip("0").rstrip(".") if "." in text else text

    def __call__(self, value: float | None) -> str:
        if value is None or math.isnan(value):
            return "-"
        value = 0.0 if abs(value) < 0.5 * 10**-self.decimals else value  # no "-0.0"
        return f"{value:,.{self.decimals}f}"

    def spread(self, mean: float | None, std: float | None) -> str:
        return f"{self(mean)} ± {self(std)}"

    def test(self, test: TestScore) -> str:
        """A test with its precision: 471.3 ± 3.1 (standard error, 100 episodes)."""
        n, success = test["episodes"], success_text(test.get("success"))
        if test["stderr"] is None:
            return f"{self(test['mean'])} ({n} episode{'s' * (n != 1)}{success})"
        spread = self.spread(test["mean"], test["stderr"])
        return f"{spread} (standard error, {n:,} episodes{success})"


def success_text(share: float | None) -> str:
    """ ", success 97 %" of episodes; "" where the env does not report it."""
    return "" if share is None else f", success {share * 100:.3g} %"


def verdict_words(run: RunSummary) -> str:
    """The verdict in a word or two, as the title of a report."""
    if run.status != "finished":
        return f"{run.status}, solved" if run.solved else run.status
    if run.solved:
        return "solved"
    return "finished" if run.threshold is None else "not solved"


def task_rows(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, score) of each task in an evaluation, where a run has several."""
    tasks = event.get("tasks")
    rows = []
    for name, entry in tasks.items() if isinstance(tasks, Mapping) else ():
        mean, threshold = entry.get("mean"), entry.get("threshold")
        text = ScoreText(threshold, mean)
        shown = f"{text(mean)} ± {text(entry.get('stderr'))} ({entry.get('episodes')} episodes)"
        if threshold is not None:
            shown += f", {'reaches' if mean >= threshold else 'below'} {text.threshold}"
        rows.append((str(name), shown))
    return rows


def result_rows(
    run: RunSummary, tests: list[dict[str, Any]], score: ScoreText
) -> tuple[list[tuple[str, str]], str | None]:
    """The result as rows of (what, value), and a sentence if greedy and sampled tests differ."""
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
        ("env steps per second", f"{speed:,.0f}" if (speed := run.env_steps_per_s) else "-"),
    ]
    why = None
    if run.test is not None:
        newest = {test.get("greedy"): test for test in tests}
        judged = newest.pop(run.test["greedy"], {})
        rows[3:3] = [
            (f"test, {'greedy' if test['greedy'] else 'sampled'} actions", score.test(test))
            for test in (run.test, *map(test_score, newest.values()))
        ]
        rows += [("about the test", run.test_note)] if run.test_note else []
        rows += [(f"task {name}", text) for name, text in task_rows(judged)]
        why = disagreement([judged, *newest.values()])
    if protocol := tests[-1].get("protocol") if tests else None:
        text = ", ".join(f"{name} {value}" for name, value in protocol.items() if value is not None)
        rows.append(("protocol of all scores", text))
    return rows, f"{why[0].upper()}{why[1:]}." if why else None


def disagreement(tests: Iterable[Mapping[str, Any]]) -> str | None:
    """Why greedy and sampled actions score differently, in one sentence; None if they do not
    clearly. `tests`: the events of the final tests, the judged one first."""
    newest = {bool(test.get("greedy")): test for test in tests}
    known = [test.get(name) for test in newest.values() for name in ("mean", "stderr")]
    if len(newest) < 2 or None in known:
        return None
    judged = "greedy" if next(iter(newest)) else "sampled"
    greedy, sampled = newest[True], newest[False]
    gap = greedy["mean"] - sampled["mean"]
    ends = [test.get(end) for test in newest.values() for end in ("min", "max")]
    returns = [end for end in ends if end is not None]
    spread = max(returns, default=0.0) - min(returns, default=0.0)
    scale = max(spread, abs(greedy["mean"]), abs(sampled["mean"]))
    error = math.hypot(greedy["stderr"], sampled["stderr"])
    if abs(gap) <= max(CLEAR_STDERRS * error, CLEAR_SHARE * scale):
        return None
    why = "greedy actions score more than sampled ones: the policy still explores when sampled"
    if gap < 0:
        why = "sampled actions score more than greedy ones: the most likely action alone gets stuck"
        why += " where the policy is undecided"
    return f"{why}; this run is judged by {judged} actions"


def resume_command(run: RunSummary, runs_dir: str | None = None) -> str:
    """The command that continues this run, with the flag that it needs to do so."""
    if is_python_env(run.env_id):
        return f'python: gs.resume("{run.id}", env=...)'
    command = f"gsolve train --resume {run.id}{runs_dir_flag(runs_dir)}"
    if run.stop_reason == "diverged" and run.stop_detail == OF_THE_ENV:
        return f"{command}  # once the environment is mended; from its last checkpoint"
    if run.stop_reason == "diverged":
        return f"{command} --policy-lr LOWER  # from the last good weights"
    if run.status in ("interrupted", "failed", "killed"):
        return f"{command}  # continues exactly where it stopped"
    if run.stop_reason in ("solved", "goal_reached_eval", "goal_reached_train"):
        return f"{command}  # trains on to its budget"
    more = {
        "max_env_steps": f"--max-env-steps {2 * run.env_steps}",
        "max_epochs": f"--max-epochs {2 * run.epoch}",
        "max_minutes": f"--max-minutes {max(1, round(run.wall_s / 30))}",
    }.get(run.stop_reason or "", "")
    return f"{command} {more}".rstrip()


def next_steps(run: RunSummary, runs_dir: str | None = None) -> list[str]:
    """The next commands for this run, with --runs-dir if it was given."""
    place = runs_dir_flag(runs_dir)
    resume = resume_command(run, runs_dir)
    if run.status in ("interrupted", "failed", "killed"):
        return [resume, f"gsolve run {run.id}{place}"]
    look = f"gsolve ui --open{place}"
    return [eval_command(run, runs_dir), f"gsolve plot {run.id}{place}", look, resume]


def train_command(run: RunSummary) -> str:
    """The command that repeats the run from its config."""
    path = f"{Path(run.path).parent.name}/{run.id}/config.yaml"
    if is_python_env(run.env_id):
        return f'python: gs.train("{path}", env=...)'
    return f"gsolve train {shlex.quote(path)}"


def eval_command(run: RunSummary, runs_dir: str | None = None) -> str:
    if is_python_env(run.env_id):
        return f'python: gs.evaluate("{run.id}", env=...)'
    return f"gsolve eval {run.id}{runs_dir_flag(runs_dir)}"


def runs_dir_flag(runs_dir: str | None) -> str:
    """` --runs-dir DIR` to append to a command, or nothing if the flag was not given."""
    return f" --runs-dir {shlex.quote(runs_dir)}" if runs_dir else ""
