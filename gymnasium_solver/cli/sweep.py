"""`gsolve sweep CONFIG|FILE [--param ...]`: search hyper-parameters. What it shows, and the verbs
`sweep show`, `best` and `list`, are in sweep_show.py."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium_solver.cli.sweep_show  # noqa: F401 (it declares the verbs within this one)
from gymnasium_solver.cli import many
from gymnasium_solver.cli.field_flags import as_flag, field_verb, overrides_of, target_of
from gymnasium_solver.cli.flags import Args, UsageError, root_of
from gymnasium_solver.cli.tables import tell
from gymnasium_solver.cli.train import unless_terminated

if TYPE_CHECKING:
    from gymnasium_solver.experiments.search.plan import Plan
    from gymnasium_solver.experiments.search.sweep_folder import Sweep

# Flags that set one key of the plan; a dot reaches into a block.
KEYS = {
    "name": "name", "trials": "trials", "jobs": "jobs", "sampler": "sampler", "seeds": "seeds",
    "seed": "seed", "metric": "metric.name", "goal": "metric.goal", "target": "metric.target",
    "cost": "cost", "prune": "prune.rule", "final": "final.top", "final_seeds": "final.seeds",
    "grid_points": "grid_points", "keep": "keep",
}  # fmt: skip
MAY_CHANGE = ("trials", "jobs", "final", "final_seeds")  # at a resume, what is searched stays
ALSO_AT_RESUME = ("runs_dir", "quiet", "json", "backend", "resources", "sbatch")

HELP = """\
usage: gsolve sweep CONFIG [--param FIELD=RANGE ...] [flags]
       gsolve sweep FILE.yaml [flags]
       gsolve sweep --resume SWEEP [--trials N] [--jobs N]
       gsolve sweep show|best|list [SWEEP] [flags]

Search hyper-parameters. Without --param the main fields of the algorithm are searched, each in the
range that it declares. A trial is a plain training in runs/sweeps/<id>/trials/. The config's own
values are the first trial. The best trials are trained again on fresh seeds: quote those scores.
A sweep that was killed continues with --resume, and comes to the same result.

parameters:
  --param policy_lr=log:1e-5..1e-2        a logarithmic range
  --param clip_range=0.1..0.4             a range; uniform:0.1..0.4:0.05 in steps of 0.05
  --param n_epochs=3..20                  whole numbers; logint:10..10000 on a log scale
  --param n_steps=pow2:32..2048           powers of two
  --param gamma=logit:0.9..0.9995         more room near 1
  --param ent_coef=normal:0.01,0.003      mean and standard deviation; lognormal
  --param n_epochs=4,10,20                a choice; lists: hidden_dims=[[64, 64], [256, 256]]
  --param policy_lr.start=log:1e-5..1e-2  a part of a schedule
  --param 'tau=log:1e-3..0.1 if target_update_freq=1'      with a condition
  --param gamma                           the field's own range

flags:
  --param FIELD=RANGE    search this field, as above; repeatable
  --space FILE           parameters of a file: ours, W&B's, SLM-Lab's
  --trials N             trials of the search (default: 30, or the whole grid)
  --jobs N               trainings at the same time (default: 1)
  --sampler NAME         auto, grid, random, tpe, gp, cmaes, stages (coarse to fine), pbt
  --metric NAME          auto, score (held-out test), auc (mean validation score over the budget),
                         best, last, steps_to_solve, or a logged metric
  --goal GOAL            maximize or minimize
  --target VALUE         end the search when a trial reaches it
  --seeds N              seeds of each trial; one that cannot win any more ends early (default: 1)
  --cost env_steps|wall_s
                         search for the best scores at low cost
  --prune asha|hyperband|median
                         stop trials by their learning curves (default: off)
  --final INT            how many of the best are trained again on fresh seeds, which choose one of
                         them (default: about 30 % of the trainings; 0: none)
  --final-seeds N        further seeds that judge it against the config's own values (default: 5, or
                         4 in a small sweep)
  --keep INT             keep the checkpoints of the best N trials only (default: of all)
  --grid-points N        values of a range in a grid (default: 4)
  --seed INT             seed of the suggestions and of the trials' seeds (default: 0)
  --FIELD VALUE          a field of the config, for all trials: --max-env-steps 50_000
  --env-kwargs KEY=VALUE...
                         arguments of the environment
  -s, --set KEY=VALUE    the same as --KEY VALUE; repeatable
  --resume SWEEP         continue a sweep; with more --trials, extend it
  --backend NAME         where trials train: local (default), ray or slurm; also with --resume
  --resources "cpus=4 hours=2"
                         what each run gets on a cluster, instead of the estimate
  --sbatch "partition=gpu"
                         further options of sbatch
  --dry-run              print what would be searched
  --name NAME            name of the sweep
  --runs-dir DIR         folder of all runs (default: $GSOLVE_RUNS or ./runs)
  --json                 print JSON, for programs
  -q, --quiet            print only the result

examples:
  gsolve sweep CartPole-v1:ppo --trials 40 --jobs 2
  gsolve sweep CartPole-v1:ppo --param policy_lr=log:1e-5..1e-2 --param n_epochs=4,10,20
  gsolve sweep config/sweeps/cartpole_ppo_bayes.yaml --trials 50
  gsolve sweep show @last
  gsolve sweep best @last --write configs/My.yaml:tuned"""


@field_verb("sweep", HELP, hidden="--config-id NAME     the target; repeatable")
def sweep(args: Args) -> int:
    if args.help:
        print(HELP)
        return 0
    return unless_terminated("sweep", lambda: run_command(args))


def run_command(args: Args) -> int:
    place = many.backend_of(args)  # reported before anything is written
    if place in ("dstack", "modal"):
        raise UsageError(
            f"--backend {place}: its runs have a disk of their own, but a sweep reads their "
            "results to choose the next ones; use local, ray or slurm"
        )
    notes: list[str] = []
    if args.resume is not None:
        sweep = resumed(args)
        jobs = sweep.plan().jobs
    else:
        from gymnasium_solver.experiments.search.plan import prepare
        from gymnasium_solver.experiments.search.sweep_folder import create_sweep

        plan, notes = plan_of(args)
        prepared = prepare(plan)
        notes += prepared.notes
        if args.dry_run:
            show_plan(args, prepared.plan, notes)
            return 0
        sweep = create_sweep(prepared, root_of(args))
        jobs = prepared.plan.jobs
    from gymnasium_solver.cli.sweep_show import run_and_show

    backend = many.pool_backend(args, [sweep.base_path])
    return run_and_show(args, sweep, jobs, notes, backend)


def plan_of(args: Args) -> "tuple[Plan, list[str]]":
    """The plan that a file and the flags describe, and notes about the file."""
    from gymnasium_solver.experiments.search.files import is_sweep_file, read_sweep_file
    from gymnasium_solver.experiments.search.plan import read_plan

    target = target_of(args)
    if target is None:
        raise UsageError("no config or file given. See gsolve sweep --help")
    data: dict[str, Any] = {}
    notes: list[str] = []
    if is_sweep_file(Path(target)):
        data, notes = read_sweep_file(Path(target))
        if not data.get("config"):
            raise UsageError(f"{target} names no config: gsolve sweep CONFIG --space {target}")
    else:
        data["config"] = target
    params, fields = data.get("params") or {}, data.get("set") or {}
    if args.space is not None:
        from_file, more = read_sweep_file(Path(args.space))
        notes += more
        params = {**params, **(from_file.get("params") or {})}
        fields = {**(from_file.get("set") or {}), **fields}
    data["params"] = {**params, **_params(args)}
    data["set"] = {**fields, **overrides_of(args)}
    _put(args, data, KEYS)
    return read_plan(data, target), notes


def _params(args: Args) -> dict[str, str]:
    """The parameters of `--param`; one without a range has an empty text."""
    from gymnasium_solver.experiments.search.space import read_param

    found: dict[str, str] = {}
    for text in args.param:
        param = read_param(text) if "=" in text else None
        found[text.strip() if param is None else param.name] = "" if param is None else str(param)
    return found


def _put(args: Args, data: dict[str, Any], flags: Iterable[str]) -> None:
    """Set the keys of a plan that these flags give."""
    from gymnasium_solver.config.yaml_file import parse_value

    for flag in flags:
        value = getattr(args, flag)
        if value is None:
            continue
        if flag == "target":
            value = parse_value(value)
            value = float(value) if isinstance(value, int) else value
        block, dot, inner = KEYS[flag].partition(".")
        data[block] = {**(data.get(block) or {}), inner: value} if dot else value


def resumed(args: Args) -> "Sweep":
    """The sweep to continue, with more trials or other jobs if given."""
    from gymnasium_solver.experiments.search.plan import read_plan
    from gymnasium_solver.experiments.search.sweep_folder import find_sweep

    target, allowed = target_of(args), {"resume", *MAY_CHANGE, *ALSO_AT_RESUME}
    names = {flag.removeprefix("--").replace("-", "_") for flag in args.own if flag[1] == "-"}
    other = [*args.fields, *(n for n in sorted(names - allowed) if getattr(args, n))]
    if target is not None or other:
        raise UsageError(
            f"{target or as_flag(other[0])}: a resumed sweep keeps what it searches; only "
            "--trials, --jobs, --final and --final-seeds may change. Start a new sweep for the rest"
        )
    sweep = find_sweep(args.resume, root_of(args))
    if sweep.is_running:
        raise UsageError(f"{sweep.id} is running; gsolve sweep show {sweep.id} shows it")
    before = sweep.plan()
    data = before.model_dump()
    _put(args, data, MAY_CHANGE)
    plan = read_plan(data, "the sweep")
    if (plan.trials or 0) < len(sweep.trials()):
        raise UsageError(f"{sweep.id} has {len(sweep.trials())} trials already: give more")
    if plan.sampler == "stages" and plan.trials != before.trials:
        raise UsageError("a search in stages divides its trials from the start: it has no more")
    if plan != before:
        sweep.write_plan(plan)
    return sweep


def show_plan(args: Args, plan: "Plan", notes: list[str]) -> None:
    from gymnasium_solver.config.yaml_file import dump_yaml

    text = "".join(f"# {note}\n" for note in notes)
    text += dump_yaml(plan.model_dump(mode="json", exclude_none=True))
    tell(args, plan.model_dump(mode="json") | {"notes": notes}, text.rstrip("\n"))
