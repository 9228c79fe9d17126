"""`gsolve eval RUN[/CHECKPOINT]`: evaluate a trained agent, greedy and sampled, on new episodes.

The same checkpoint, seed and number of episodes give the same scores: by default those of the run's
held-out test, with `--seed val` those of the validation that selected the checkpoint. Fields of the
environment are flags, to evaluate an agent in a changed one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    FieldArgs,
    UsageError,
    as_flag,
    overrides_of,
    parse_fields,
    unknown_flag,
)

if TYPE_CHECKING:
    from gymnasium_solver.training.score import Scores
    from gymnasium_solver.training.targets import Found

OPTIONS = {
    "help": NONE,
    "episodes": ONE,
    "seed": ONE,
    "greedy": NONE,
    "sampled": NONE,
    "json": NONE,
    "runs_dir": ONE,
    "log_level": ONE,
    "trust": NONE,
    "set": ONE,
    "env_kwargs": MANY,
}
HELP = """\
usage: gsolve eval RUN[/CHECKPOINT] [flags]

Evaluate a trained agent: mean return over whole episodes, greedy and sampled. RUN is @last, an id
or a part of one; CHECKPOINT is @best (default), @last or <env_steps>.

flags:
  --episodes N             number of whole episodes (default: as in the run's test)
  --seed test|val|train|INT
                           seed of the environments (default: test)
  --greedy                 use only the most likely action
  --sampled                use only sampled actions
  --env-kwargs KEY=VALUE   change arguments of the environment, several at once
  --FIELD VALUE...         change another field of the environment: --max-episode-steps 200,
                           --vectorization-mode sync, --reward-threshold 300, --n-eval-envs 1
  -s, --set KEY=VALUE      the same, for a field or a place in one; repeatable
  --trust                  import the code that the config of a run made elsewhere names
  --json                   print JSON, for programs
  --runs-dir DIR           folder of all runs (default: $GSOLVE_RUNS or ./runs)
  --log-level LEVEL        show messages from debug, info (default), warning or error on
  -h, --help               show this help

The run itself is not changed. Fields that only matter in training are refused.

examples:
  gsolve eval @last
  gsolve eval a1b2/@best --episodes 100 --greedy
  gsolve eval a1b2/50000 --seed val --json
  gsolve eval @last --env-kwargs gravity=-5 --max-episode-steps 2000"""


def main(argv: Sequence[str]) -> int:
    args = parse_fields(argv, OPTIONS)
    if args.has("help"):
        print(HELP)
        return 0
    ref = _target(args)
    modes = {"greedy": True, "sampled": False}
    if args.has("greedy") and args.has("sampled"):
        raise UsageError("--greedy and --sampled exclude each other: without both, both are shown")
    if args.has("greedy") or args.has("sampled"):
        modes = {"greedy": True} if args.has("greedy") else {"sampled": False}
    episodes, seed = _episodes(args.last("episodes")), args.last("seed") or "test"

    from gymnasium_solver.cli.eval_progress import eval_progress
    from gymnasium_solver.cli.logs import check_level, logged_to_stderr
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.training.activity import Activity
    from gymnasium_solver.training.score import score
    from gymnasium_solver.training.targets import find_run

    root = runs_root(args.last("runs_dir"))
    found = _changed(find_run(ref, root, trust=args.has("trust")), args)
    level, activity = check_level(args.last("log_level") or "info"), Activity()
    with eval_progress(activity), logged_to_stderr(level):
        scores = score(found, episodes, int(seed) if seed.isdecimal() else seed, modes, activity)
    if args.has("json"):
        from gymnasium_solver.cli.tables import print_json

        print_json(as_json(found, scores))
    else:
        print_scores(found, scores)
    return 0


def _target(args: FieldArgs) -> str:
    given = list(args.positionals)
    for values in (*args.fields.values(), args.options.get("env_kwargs", [])):
        # `eval --max-episode-steps 9 @last`: the last word is the run, not a second value.
        if not given and values and (len(values) > 1 or values[-1].startswith("@")):
            given.append(values.pop())
    if len(given) != 1:
        wrong = "no run given" if not given else f"expected one run, got {', '.join(given)}"
        raise UsageError(f"{wrong}. Usage: gsolve eval RUN[/CHECKPOINT]; see gsolve eval --help")
    return given[0]


def _episodes(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--episodes {text}: must be a whole number of at least 1")
    return int(text)


def _changed(found: "Found", args: FieldArgs) -> "Found":
    """The run with the fields that the flags change."""
    from gymnasium_solver.training.targets import EVAL_FIELDS, with_fields

    known = {*type(found.config).model_fields, *EVAL_FIELDS}
    for name, written in args.spelled.items():
        if name.partition(".")[0].removeprefix("no_") not in known:
            flags = [as_flag(flag) for flag in (*OPTIONS, *EVAL_FIELDS)]
            raise UsageError(unknown_flag(written, flags, "gsolve eval"))
    return with_fields(found, overrides_of(args), EVAL_FIELDS)


def as_json(found: "Found", scores: "Scores") -> dict[str, Any]:
    from gymnasium_solver.config.load import config_dict

    assert found.run is not None
    now = config_dict(found.config)
    return {
        "run": found.run.id,
        "checkpoint": found.label,
        "env_steps": scores.env_steps,
        "env_id": found.config.env_id,
        "seed": scores.seed,
        "threshold": scores.threshold,
        "stored": scores.stored,
        "changed": {name: now[name] for name in found.changed},
        "scores": {name: result.to_dict() for name, result in scores.results.items()},
    }


def print_scores(found: "Found", scores: "Scores") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import GREEN, ORANGE
    from gymnasium_solver.cli.fieldhelp import shown
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table
    from gymnasium_solver.runs.words import ScoreText, task_rows

    assert found.run is not None
    console = make_console()
    console.print(
        Text.assemble(
            (f"{found.run.id}/{found.label}", "bold"),
            f"  {found.config.env_id}, {scores.env_steps:,} env steps, seed {scores.seed}",
        )
    )
    for name, (before, after) in found.changed.items():
        console.print(Text(f"changed: {name} {shown(before)} → {shown(after)}", style=ORANGE))
    right = {"justify": "right"}
    heads = ["mean", "stderr", "std", "min", "max", "length", "episodes"]
    if any(result.success is not None for result in scores.results.values()):
        heads.append("success")
    table = plain_table("", *((name, right) for name in heads), "")
    threshold = scores.threshold
    text = ScoreText(threshold, [result.mean for result in scores.results.values()])
    for name, result in scores.results.items():
        reaches = threshold is not None and result.mean >= threshold
        reaches = reaches and all(s["mean"] >= s["threshold"] for s in result.tasks.values())
        figures = (result.mean, result.stderr, result.std, result.min, result.max)
        table.add_row(
            name,
            *(text(figure) for figure in figures),
            fmt.number(result.length_mean, 1),
            str(result.episodes),
            *([] if result.success is None else [f"{result.success:.2f}"]),
            Text(f"★ reaches {text.threshold}", style=GREEN) if reaches else "",
        )
    print_table(console, table)
    for name, result in scores.results.items():
        for task, shown_score in task_rows(result.to_dict()):
            console.print(f"{name}, task {task}: {shown_score}")
    if scores.stored is not None:
        stored = text(scores.stored)
        console.print(f"validation when this checkpoint was saved: {stored}", style="bright_black")
