"""How a run ended, in words: for the end of `gsolve train` and for `gsolve run`."""

from typing import TYPE_CHECKING

from rich.text import Text

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.dashboard import GREEN, ORANGE

if TYPE_CHECKING:
    from gymnasium_solver.runs.query import RunSummary
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult

STOPPED = {
    "max_env_steps": "the budget of env steps is used up",
    "max_epochs": "the budget of epochs is used up",
    "solved_eval": "an evaluation reached the threshold",
    "solved_train": "the training episodes reached the threshold",
    "interrupted": "interrupted",
    "diverged": "a value was not finite",
    "error": "an error",
}


def verdict(summary: "RunSummary") -> Text:
    """The run in a line: solved, or how far it came."""
    best, threshold = summary.best, summary.threshold
    score = f"best val {fmt.number(best['score'], 1)}" if best else "no evaluation yet"
    after = f"{summary.env_steps:,} env steps, {fmt.duration(summary.wall_s)}"
    if summary.solved and threshold is not None:
        reached = f"{score} ≥ {threshold:g}" if best else f"training reached {threshold:g}"
        return Text.assemble(("SOLVED", f"bold {GREEN}"), f"  {reached}  in {after}")
    word = summary.status.upper()
    if summary.status == "finished":
        word = "finished" if threshold is None else "not solved"
    aim = "" if threshold is None else f" (solved is {threshold:g})"
    return Text.assemble((word, f"bold {ORANGE}"), f"  {score}{aim}  after {after}")


def result(summary: "RunSummary", final: "dict[str, EvalResult]") -> list[Text]:
    """The end, in full."""
    rows = [("stopped", STOPPED.get(summary.stop_reason or "", summary.stop_reason or "-"))]
    if summary.best:
        rows.append(
            (
                "best",
                f"val {fmt.number(summary.best['score'], 1)} at"
                f" {summary.best['env_steps']:,} env steps, in checkpoints/best",
            )
        )
    for mode, test in final.items():
        rows.append(
            (
                "test" if mode == next(iter(final)) else "",
                f"{mode:<8} {fmt.number(test.mean, 1)} ± {fmt.number(test.std, 1)}"
                f"  ({test.episodes} episodes, seed {test.seed})",
            )
        )
    rows.append(("folder", str(summary.path)))
    rows += [("next" if i == 0 else "", line) for i, line in enumerate(next_steps(summary))]
    body = [Text.assemble((f"  {key:<9}", "bright_black"), text) for key, text in rows]
    return [Text(""), verdict(summary), *body]


def broken_off(run: "Run") -> list[Text]:
    """What to say of a run that an error ended; the error itself is told by who catches it."""
    from gymnasium_solver.runs.query import get_run

    summary = get_run(run)
    lines = [Text(""), verdict(summary)]
    rows = [("folder", str(summary.path))]
    if summary.checkpoints:
        rows += [("next" if i == 0 else "", line) for i, line in enumerate(next_steps(summary))]
    return lines + [Text.assemble((f"  {key:<9}", "bright_black"), text) for key, text in rows]


def quiet_result(summary: "RunSummary", final: "dict[str, EvalResult]") -> list[Text]:
    scores = [f"{mode} {fmt.number(test.mean, 1)}" for mode, test in final.items()]
    line = verdict(summary)
    if scores:
        line.append("  test: " + ", ".join(scores))
    return [line, Text(str(summary.path))]


def next_steps(summary: "RunSummary") -> list[str]:
    """What to type now, with the run's id."""
    run = summary.id
    resume = f"gsolve train --resume {run}"
    if summary.stop_reason == "diverged":
        return [f"{resume} --policy-lr LOWER  # from the last good weights", f"gsolve run {run}"]
    if summary.status in ("interrupted", "failed", "killed"):
        return [f"{resume}  # goes on exactly where it stopped", f"gsolve run {run}"]
    more = {
        "max_env_steps": f"--max-env-steps {2 * summary.env_steps}",
        "max_epochs": f"--max-epochs {2 * summary.epoch}",
        "solved_train": "--early-stop-on-train-threshold null",
        "solved_eval": "--early-stop-on-eval-threshold null",
    }.get(summary.stop_reason or "", "")
    return [
        f"gsolve eval {run}",
        f"gsolve plot {run}",
        f"{resume} {more}".rstrip(),
    ]
