"""`gsolve solve ENV`: an environment without a tuned config, within a budget."""

from typing import TYPE_CHECKING

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.cli.train import saves_at_sigterm
from gymnasium_solver.config.env_ids import as_env_id, split_target
from gymnasium_solver.experiments.experiment import open_experiment

if TYPE_CHECKING:
    from gymnasium_solver.experiments.auto.budget import Budget
    from gymnasium_solver.experiments.auto.solve import Solve

DEFAULT_STEPS = 300_000
STYLES = {"verdict": "bold", "problem": out.ORANGE, "check": out.ORANGE}
GOOD = ("solved", "learnt")


@verb("""
usage: gsolve solve ENV [--budget 20min | --max-env-steps 1e6] [flags]
       gsolve solve --resume NAME

Solve an environment that has no tuned config. Seconds of random actions measure it; a table chooses
two presets; both train for 9 % of the budget each, with two seeds; the winner goes on with its
weights. A training that learns nothing or stands still is replaced once. The verdict comes from
held-out episodes. Each decision is one line with what was measured, and all of them are in
auto.json. Ctrl-C keeps what was trained; --resume goes on.

--budget TIME          for everything together: 90s, 20min, 2h
--max-env-steps COUNT  or env steps, of all runs together (default: 300,000)
--resume NAME          continue
--jobs N               trainings at the same time (default: 2, or 1 on one CPU)
--name NAME            name of the folder in runs/experiments (default: the env, date and time)
--FIELD VALUE          a field of every config: --device cuda
-q, --quiet            print only the verdict
--env-kwargs --set --trust --runs-dir --json

The winner's config is winner.yaml: gsolve train runs/experiments/NAME/winner.yaml repeats it, and
gsolve sweep tunes it.

examples:
  gsolve solve Pendulum-v1 --max-env-steps 50_000
  gsolve solve my_module:MyEnv-v0 --budget 20min
  gsolve solve --resume MyEnv
""")
@saves_at_sigterm
def run_command(args: Args) -> int:
    solve = resumed(args) if args.resume is not None else started(args)
    console = out.make_console(stderr=args.json)
    if not args.quiet:
        console.print(f"solve {solve.experiment.id}, {solve.budget}", style="bold")

    def tell(stage: str, text: str) -> None:
        if not args.quiet or stage == "verdict":
            console.print(f"{stage:<8} {text}", style=STYLES.get(stage), highlight=False)

    view = out.LiveView(console, quiet=args.quiet)
    try:
        with view:
            found = solve.run(
                jobs=args.jobs,
                tell=tell,
                on_poll=lambda now: view.draw(lambda: progress(now)),
                trust=args.trust,
            )
    except KeyboardInterrupt:
        console.print(f"stopped; gsolve solve --resume {solve.experiment.id} continues it")
        raise
    if not args.quiet:
        console.print(f"files    {solve.path}: auto.json, winner.yaml", highlight=False)
    out.told_json(args, found | {"id": solve.experiment.id, "path": str(solve.path)})
    return 0 if found["kind"] in GOOD else 1


def started(args: Args) -> "Solve":
    """Measure the environment, choose, and write the folder."""
    from gymnasium_solver.algos import algo_ids
    from gymnasium_solver.experiments.auto.solve import create
    from gymnasium_solver.runs.machine import process_age_s

    env_id = args.config_name()
    if env_id is None:
        raise UsageError("no environment given, for example: gsolve solve Pendulum-v1")
    env_id = as_env_id(env_id)
    name, variant = split_target(env_id)
    if variant is not None and variant.lower() in algo_ids():
        raise UsageError(
            f"{env_id} names an algorithm, but solve chooses it: gsolve solve {name}. To train "
            f"with {variant}: gsolve train {env_id}"
        )
    fields = args.overrides()
    env_kwargs = dict(fields.pop("env_kwargs", None) or {})
    for name in [name for name in fields if name.startswith("env_kwargs.")]:
        env_kwargs[name.removeprefix("env_kwargs.")] = fields.pop(name)
    if "algo_id" in fields:
        raise UsageError(
            f"--algo-id {fields['algo_id']}: solve chooses it. With an algorithm of your own: "
            f"gsolve train {env_id}:{fields['algo_id']}"
        )
    budget, seed = budget_of(args), fields.pop("seed", None)
    return create(
        env_id,
        budget,
        args.root(),
        env_kwargs=env_kwargs,
        fields=fields,
        seed=seed,
        name=args.name,
        command=args.command,
        spent_s=process_age_s(),  # the imports count
    )


def resumed(args: Args) -> "Solve":
    from gymnasium_solver.experiments.auto.solve import load

    for word in [*args.spelled.values(), *args.words, *(["--budget"] if args.budget else [])]:
        raise UsageError(f"{word}: --resume goes on as it was started; remove it")
    return load(open_experiment(args.resume, args.root()).path)


def budget_of(args: Args) -> "Budget":
    from gymnasium_solver.experiments.auto.budget import Budget

    if args.budget is None:
        return Budget(env_steps=args.max_env_steps or DEFAULT_STEPS)
    if args.max_env_steps is not None:
        raise UsageError("--budget and --max-env-steps: give one of them")
    return Budget(minutes=args.budget / 60.0)


def progress(solve: "Solve") -> Table:
    """A bar over the whole budget, and what trains now."""
    share = solve.share_done
    line = Table.grid(padding=(0, 1))
    newest = [run for run in solve.runs if run.status == "running"]
    text = ", ".join(
        f"{run.variant} s{run.seed} {run.env_steps:,} steps"
        + ("" if run.best_score is None else f", validation {run.best_score:,.4g}")
        for run in newest
    )
    line.add_row(ProgressBar(total=1.0, completed=share, width=30), f"{share:4.0%}", Text(text))
    return line
