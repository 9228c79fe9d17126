"""`gsolve eval RUN[/CHECKPOINT]`: evaluate a trained agent, greedy and sampled, on new episodes.

The same checkpoint, seed and number of episodes give the same scores: by default those of the run's
held-out test, with `--seed val` those of the validation that selected the checkpoint. Fields of the
environment are flags, to evaluate an agent in a changed one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, as_flag, unknown_flag, verb
from gymnasium_solver.cli.logs import check_level, logged_to_stderr
from gymnasium_solver.runs.files import picked

if TYPE_CHECKING:
    from gymnasium_solver.training.activity import Activity
    from gymnasium_solver.training.score import Scores
    from gymnasium_solver.training.targets import Found


@verb("""
usage: gsolve eval RUN[/CHECKPOINT] [flags]

Evaluate a trained agent: mean return over whole episodes, greedy and sampled. RUN is @last, an id
or a part of one; CHECKPOINT is @best (default), @last or <env_steps>.

--episodes N             number of whole episodes (default: as in the run's test)
--greedy                 use only the most likely action
--sampled                use only sampled actions
--FIELD VALUE...         change another field of the environment: --max-episode-steps 200,
                         --vectorization-mode sync, --reward-threshold 300, --n-eval-envs 1
-s, --set KEY=VALUE      the same, for a field or a place in one; repeatable
--no-keep                do not keep the scores in the run's folder (evaluations.jsonl)
--seed --env-kwargs --trust --json --runs-dir --log-level

The verdict of the run stays what it is. Fields that only matter in training are refused.

examples:
  gsolve eval @last
  gsolve eval a1b2/@best --episodes 100 --greedy
  gsolve eval a1b2/50000 --seed val
  gsolve eval @last --env-kwargs gravity=-5 --max-episode-steps 2000
""")
def evaluate(args: Args) -> None:
    given = list(args.words)
    for values in (*args.fields.values(), args.env_kwargs):
        # `eval --max-episode-steps 9 @last`: the last word is the run, not a second value.
        if not given and values and (len(values) > 1 or values[-1].startswith("@")):
            given.append(values.pop())
    if len(given) != 1:
        wrong = "no run given" if not given else f"expected one run, got {', '.join(given)}"
        raise UsageError(f"{wrong}. Usage: gsolve eval RUN[/CHECKPOINT]; see gsolve eval --help")
    if args.greedy and args.sampled:
        raise UsageError("--greedy and --sampled exclude each other: without both, both are shown")
    modes = {"greedy": True} if not args.sampled else {}
    modes |= {"sampled": False} if not args.greedy else {}

    from gymnasium_solver.config.load import config_dict
    from gymnasium_solver.training.activity import Activity
    from gymnasium_solver.training.score import score
    from gymnasium_solver.training.targets import EVAL_FIELDS, find_run, with_fields

    found = find_run(given[0], args.root(), trust=args.trust)
    known = {*type(found.config).model_fields, *EVAL_FIELDS}
    for name, written in args.spelled.items():
        if name.partition(".")[0].removeprefix("no_") not in known:
            flags = [*args.own, *map(as_flag, EVAL_FIELDS)]
            raise UsageError(unknown_flag(written, flags, "gsolve eval"))
    found = with_fields(found, args.overrides(), EVAL_FIELDS)
    level, activity = check_level(args.log_level or "info"), Activity()
    with eval_progress(activity), logged_to_stderr(level):
        scores = score(found, args.episodes, args.wanted_seed(), modes, activity)
    assert found.run is not None
    now = config_dict(found.config)
    about = {"checkpoint": found.label, "changed": {name: now[name] for name in found.changed}}
    kept = not args.no_keep and all(
        found.run.record_evaluation(**result.to_dict(), **about)
        for result in scores.results.values()
    )
    data = {
        "run": found.run.id,
        "env_id": found.config.env_id,
        **picked(scores, "env_steps seed threshold stored"),
        **about,
        "kept": kept,
        "scores": {name: result.to_dict() for name, result in scores.results.items()},
    }
    if not out.told_json(args, data):
        _print_scores(found, scores)
        if not kept and not args.no_keep:
            out.show(f"the scores could not be kept in {found.run.path}", style=out.GREY)


def _print_scores(found: "Found", scores: "Scores") -> None:
    from gymnasium_solver.cli.configs import shown
    from gymnasium_solver.runs.words import ScoreText, task_rows

    assert found.run is not None
    console = out.make_console()
    about = f"  {found.config.env_id}, {scores.env_steps:,} env steps, seed {scores.seed}"
    console.print(Text.assemble((f"{found.run.id}/{found.label}", "bold"), about))
    for name, (before, after) in found.changed.items():
        console.print(Text(f"changed: {name} {shown(before)} → {shown(after)}", style=out.ORANGE))
    heads = [">mean", ">stderr", ">std", ">min", ">max", ">length", ">episodes"]
    if any(result.success is not None for result in scores.results.values()):
        heads.append(">success")
    table = out.table("", *heads, "")
    threshold = scores.threshold
    text = ScoreText(threshold, [result.mean for result in scores.results.values()])
    for name, result in scores.results.items():
        reaches = threshold is not None and result.mean >= threshold
        reaches = reaches and all(s["mean"] >= s["threshold"] for s in result.tasks.values())
        figures = (result.mean, result.stderr, result.std, result.min, result.max)
        table.add_row(
            name,
            *(text(figure) for figure in figures),
            out.number(result.length_mean, 1),
            str(result.episodes),
            *([] if result.success is None else [f"{result.success:.2f}"]),
            Text(f"★ reaches {text.threshold}", style=out.GREEN) if reaches else "",
        )
    console.print(table)
    for name, result in scores.results.items():
        for task, shown_score in task_rows(result.to_dict()):
            console.print(f"{name}, task {task}: {shown_score}")
    if scores.stored is not None:
        stored = text(scores.stored)
        console.print(f"validation when this checkpoint was saved: {stored}", style=out.GREY)


class EvalLine:
    """A rich renderable of an evaluation under way."""

    def __init__(self, activity: "Activity") -> None:
        self.activity = activity

    def __rich__(self) -> Text:
        a = self.activity
        if a.phase == "starting":
            return Text("starting the environments", style=out.GREY)
        done = f"{a.eval_episodes_done:,} / {a.eval_episodes:,} episodes"
        took = out.duration(a.clock_s() - a.phase_began_s)
        return Text(f"evaluating {done} · {a.eval_rows:,} steps · {took}", style=out.GREY)


@contextmanager
def eval_progress(activity: "Activity", console: Console | None = None) -> Iterator[None]:
    """While the block runs, show how far an evaluation is: one line on the standard error, if that
    is a terminal."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    with Live(EvalLine(activity), console=console, transient=True, redirect_stdout=False):
        yield
