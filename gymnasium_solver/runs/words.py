"""Texts about a run for the console and report.md: scores, stop reasons, next commands.

score = ScoreText(run.threshold)
score(0.74), score.threshold      # "0.740", "0.7" where 0.7 counts as solved
"""

import math
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymnasium_solver.runs.query import RunSummary, TestScore

STOPPED = {
    "max_env_steps": "the env step budget is used up",
    "max_epochs": "the epoch budget is used up",
    "solved": "a held-out test reached the threshold",
    "goal_reached_eval": "an evaluation reached the goal",
    "goal_reached_train": "the training episodes reached the goal",
    "interrupted": "it was interrupted",
    "requested": "an observer requested it",
    "diverged": "a value was not finite",
    "error": "an error ended it",
}
MOST_DECIMALS = 6


def stopped(run: "RunSummary", otherwise: str) -> str:
    """Why a run ended, as text; `otherwise` if it has not ended."""
    reason = run.stop_reason or otherwise
    detail = f" ({run.stop_detail})" if run.stop_detail else ""
    return STOPPED.get(reason, reason) + detail


class ScoreText:
    """Formats scores of one scale with the same decimals: three significant digits, at least one
    decimal.

    The scale is that of the threshold or, without one, of the largest score given.
    """

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

    def test(self, test: "TestScore") -> str:
        """A test with its precision: 471.3 ± 3.1 (standard error, 100 episodes)."""
        n = test["episodes"]
        if test["stderr"] is None:
            return f"{self(test['mean'])} ({n} episode{'s' * (n != 1)})"
        spread = self.spread(test["mean"], test["stderr"])
        return f"{spread} (standard error, {n:,} episodes)"


def resume_command(run: "RunSummary", runs_dir: str | None = None) -> str:
    """The command that continues this run, with the flag that keeps it from stopping
    immediately."""
    command = f"gsolve train --resume {run.id}{runs_dir_flag(runs_dir)}"
    if run.stop_reason == "diverged":
        return f"{command} --policy-lr LOWER  # from the last good weights"
    if run.status in ("interrupted", "failed", "killed"):
        return f"{command}  # continues exactly where it stopped"
    more = {
        "max_env_steps": f"--max-env-steps {2 * run.env_steps}",
        "max_epochs": f"--max-epochs {2 * run.epoch}",
        "solved": "--early-stop-on-eval-threshold null",
        "goal_reached_eval": "--early-stop-on-eval-threshold null",
        "goal_reached_train": "--early-stop-on-train-threshold null",
    }.get(run.stop_reason or "", "")
    return f"{command} {more}".rstrip()


def next_steps(run: "RunSummary", runs_dir: str | None = None) -> list[str]:
    """The next commands for this run, with --runs-dir if it was given."""
    place = runs_dir_flag(runs_dir)
    resume = resume_command(run, runs_dir)
    if run.status in ("interrupted", "failed", "killed"):
        return [resume, f"gsolve run {run.id}{place}"]
    return [f"gsolve eval {run.id}{place}", f"gsolve plot {run.id}{place}", resume]


def runs_dir_flag(runs_dir: str | None) -> str:
    """` --runs-dir DIR` to append to a command, or nothing if the flag was not given."""
    return f" --runs-dir {shlex.quote(runs_dir)}" if runs_dir else ""
