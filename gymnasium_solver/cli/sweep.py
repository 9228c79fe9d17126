"""`gsolve sweep CONFIG|FILE [--param ...]`: search hyper-parameters; `show`, `best`, `list`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    FieldArgs,
    UsageError,
    overrides_of,
    parse_fields,
    target_of,
)

if TYPE_CHECKING:
    from gymnasium_solver.experiments.search.folder import Sweep
    from gymnasium_solver.experiments.search.plan import Plan

OPTIONS = {
    "help": NONE, "quiet": NONE, "json": NONE, "dry_run": NONE, "set": ONE, "override": ONE,
    "env_kwargs": MANY, "config_id": ONE, "param": ONE, "space": ONE, "resume": ONE,
    "runs_dir": ONE, "name": ONE, "trials": ONE, "jobs": ONE, "sampler": ONE, "seeds": ONE,
    "seed": ONE, "metric": ONE, "goal": ONE, "target": ONE, "cost": ONE, "prune": ONE,
    "final": ONE, "final_seeds": ONE, "grid_points": ONE, "keep": ONE,
    "backend": ONE, "resources": ONE, "sbatch": ONE,
}  # fmt: skip
PLACE = ("backend", "resources", "sbatch")  # where trials train, not what is searched
# Flags that set one key of the plan; a dot reaches into a block.
KEYS = {
    "name": "name", "trials": "trials", "jobs": "jobs", "sampler": "sampler", "seeds": "seeds",
    "seed": "seed", "metric": "metric.name", "goal": "metric.goal", "target": "metric.target",
    "cost": "cost", "prune": "prune.rule", "final": "final.top", "final_seeds": "final.seeds",
    "grid_points": "grid_points", "keep": "keep",
}  # fmt: skip
FLOATS = ("metric.target",)
TEXTS = ("name", "metric.name")

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
  --space FILE                            parameters of a file: ours, W&B's, SLM-Lab's

flags:
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
  --final N              how many of the best are trained again on fresh seeds, which choose one of
                         them (default: about 30 % of the trainings; 0: none)
  --final-seeds N        further seeds that judge it against the config's own values (default: 5, or
                         4 in a small sweep)
  --keep N               keep the checkpoints of the best N trials only (default: of all)
  --grid-points N        values of a range in a grid (default: 4)
  --seed N               seed of the suggestions and of the trials' seeds (default: 0)
  --FIELD VALUE, -s K=V  a field of the config, for all trials: --max-env-steps 50_000
  --resume SWEEP         continue a sweep; with more --trials, extend it
  --backend NAME         where trials train: local (default), ray or slurm; also with --resume.
                         --resources "cpus=4 hours=2", --sbatch "partition=gpu"
  --dry-run              print what would be searched
  --name NAME, --runs-dir DIR, --json, -q

examples:
  gsolve sweep CartPole-v1:ppo --trials 40 --jobs 2
  gsolve sweep CartPole-v1:ppo --param policy_lr=log:1e-5..1e-2 --param n_epochs=4,10,20
  gsolve sweep config/sweeps/cartpole_ppo_bayes.yaml --trials 50
  gsolve sweep show @last
  gsolve sweep best @last --write configs/My.yaml:tuned"""


def main(argv: Sequence[str]) -> int:
    """Additional exit code: 75 after SIGTERM; the sweep can be resumed."""
    if argv and argv[0] in ("show", "best", "list"):
        from gymnasium_solver.cli import sweep_read

        return sweep_read.main(argv[0], argv[1:])
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    from gymnasium_solver.training.signals import PREEMPTED, Terminated, sigterm_raises

    with sigterm_raises():
        try:
            return run_command(argv)
        except Terminated:
            print("gsolve sweep: terminated; gsolve sweep --resume @last continues it",
                  file=sys.stderr)  # fmt: skip
            return PREEMPTED


def run_command(argv: Sequence[str]) -> int:
    from gymnasium_solver.cli import placement

    args = parse_fields(argv, OPTIONS)
    target = target_of(args)
    place = placement.backend_of(args)  # reported before anything is written
    placement.check_shared(place)
    if args.has("resume"):
        sweep = resumed(args, target)
        jobs = sweep.plan().jobs
        notes: list[str] = []
    else:
        plan, notes = plan_of(args, target)
        from gymnasium_solver.experiments.search.prepare import prepare
        from gymnasium_solver.runs.run import runs_root

        prepared = prepare(plan)
        notes += prepared.notes
        if args.has("dry_run"):
            return print_plan(prepared.plan, notes, as_json=args.has("json"))
        sweep = prepared.create(runs_root(args.last("runs_dir")))
        jobs = prepared.plan.jobs
    from gymnasium_solver.cli.sweep_live import watch

    backend = placement.pool_backend(place, [sweep.base_path], args)
    quiet, as_json = args.has("quiet"), args.has("json")
    return watch(sweep, jobs, notes, quiet=quiet, as_json=as_json, backend=backend)


def plan_of(args: FieldArgs, target: str | None) -> "tuple[Plan, list[str]]":
    """The plan that a file and the flags describe, and notes about the file."""
    from gymnasium_solver.experiments.search.files import is_sweep_file, read_sweep_file
    from gymnasium_solver.experiments.search.plan import read_plan

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
    if space := args.last("space"):
        from_file, more = read_sweep_file(Path(space))
        notes += more
        data["params"] = {**(data.get("params") or {}), **(from_file.get("params") or {})}
        data["set"] = {**(from_file.get("set") or {}), **(data.get("set") or {})}
    fields = overrides_of(args)
    fields.pop("seed", None)
    data["set"] = {**(data.get("set") or {}), **fields}
    if args.has("param"):
        data["params"] = {**(data.get("params") or {}), **params_of(args)}
    for flag, key in KEYS.items():
        if (text := args.last(flag)) is not None:
            put(data, key, text)
    return read_plan(data, target), notes


def params_of(args: FieldArgs) -> dict[str, str]:
    """The parameters of `--param`; one without a range has an empty text."""
    from gymnasium_solver.experiments.search.space import read_param

    found: dict[str, str] = {}
    for text in args.options.get("param", []):
        if "=" not in text:
            found[text.strip()] = ""
            continue
        param = read_param(text)
        found[param.name] = str(param)
    return found


def put(data: dict[str, Any], key: str, text: str) -> None:
    """Set a key of the plan from the text of a flag."""
    from gymnasium_solver.config.yaml_file import parse_value

    value = text if key in TEXTS else parse_value(text)
    if key in FLOATS and isinstance(value, int):
        value = float(value)
    block, dot, inner = key.partition(".")
    if dot:
        data[block] = {**(data.get(block) or {}), inner: value}
    else:
        data[block] = value


def resumed(args: FieldArgs, target: str | None) -> "Sweep":
    """The sweep to continue, with more trials or other jobs if given."""
    from gymnasium_solver.experiments.search.folder import find_sweep
    from gymnasium_solver.runs.run import runs_root

    allowed = {"resume", "trials", "jobs", "runs_dir", "quiet", "json", "final", "final_seeds"}
    allowed |= set(PLACE)
    other = [*args.fields, *(name for name in args.options if name not in allowed)]
    if target is not None or other:
        what = target or f"--{other[0].replace('_', '-')}"
        raise UsageError(
            f"{what}: a resumed sweep keeps what it searches; only --trials, --jobs, --final and "
            "--final-seeds may change. Start a new sweep for the rest"
        )
    sweep = find_sweep(args.last("resume") or "", runs_root(args.last("runs_dir")))
    if sweep.is_running:
        raise UsageError(f"{sweep.id} is running; gsolve sweep show {sweep.id} shows it")
    data = sweep.plan().model_dump()
    before = sweep.plan()
    for flag in ("trials", "jobs", "final", "final_seeds"):
        if (text := args.last(flag)) is not None:
            put(data, KEYS[flag], text)
    from gymnasium_solver.experiments.search.plan import read_plan

    plan = read_plan(data, "the sweep")
    if (plan.trials or 0) < len(sweep.trials()):
        raise UsageError(f"{sweep.id} has {len(sweep.trials())} trials already: give more")
    if plan.sampler == "stages" and plan.trials != before.trials:
        raise UsageError("a search in stages divides its trials from the start: it has no more")
    if plan != before:
        sweep.write_plan(plan)
    return sweep


def print_plan(plan: "Plan", notes: list[str], *, as_json: bool) -> int:
    if as_json:
        from gymnasium_solver.cli.tables import print_json

        print_json(plan.model_dump(mode="json") | {"notes": notes})
        return 0
    from gymnasium_solver.config.yaml_file import dump_yaml

    for note in notes:
        print(f"# {note}")
    print(dump_yaml(plan.model_dump(mode="json", exclude_none=True)), end="")
    return 0
