"""`gsolve sweep CONFIG|FILE [--param ...]`: search hyper-parameters. It shows a live table or
a line per trial; then the result. And `sweep show|best|list`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli import many
from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, as_flag, verb
from gymnasium_solver.cli.train import saves_at_sigterm
from gymnasium_solver.config.yaml_file import dump_yaml, parse_value
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.search import sweep_folder as folders
from gymnasium_solver.experiments.search import sweep_report as report
from gymnasium_solver.experiments.search.files import is_sweep_file, read_sweep_file
from gymnasium_solver.experiments.search.plan import Plan, prepare, read_plan
from gymnasium_solver.experiments.search.ranking import ranked
from gymnasium_solver.experiments.search.space import read_param
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run, is_run

if TYPE_CHECKING:
    from gymnasium_solver.experiments.pool import Backend
    from gymnasium_solver.experiments.search.search import Search

# Flags that set one key of the plan; a dot reaches into a block.
KEYS = {
    "name": "name", "trials": "trials", "jobs": "jobs", "sampler": "sampler", "seeds": "seeds",
    "seed": "seed", "metric": "metric.name", "goal": "metric.goal", "target": "metric.target",
    "cost": "cost", "prune": "prune.rule", "final": "final.top", "final_seeds": "final.seeds",
    "grid_points": "grid_points", "keep": "keep",
}  # fmt: skip
MAY_CHANGE = ("trials", "jobs", "final", "final_seeds")  # at a resume, what is searched stays
ALSO_AT_RESUME = ("runs_dir", "quiet", "json", "backend", "resources", "sbatch", "trust")
SHOWN, SHOWN_LIVE = 15, 8  # trials of `sweep show`, and while one runs


@verb("""
usage: gsolve sweep CONFIG [--param FIELD=RANGE ...] [flags]
       gsolve sweep FILE.yaml [flags]
       gsolve sweep --resume SWEEP [--trials N] [--jobs N]
       gsolve sweep show|best|list [SWEEP] [flags]

Search hyper-parameters. Without --param the main fields of the algorithm are searched, each in the
range that it declares. A trial is a plain training in runs/sweeps/<id>/trials/. The config's own
values are the first trial. The best trials are trained again on fresh seeds: quote those scores.
A sweep that was killed continues with --resume, and comes to the same result.

parameters:
  --param policy_lr=log:1e-5..1e-2        a logarithmic range; log0:1e-5..0.1 or 0
  --param clip_range=0.1..0.4             a range; uniform:0.1..0.4:0.05 in steps of 0.05
  --param n_epochs=3..20                  whole numbers; logint:10..10000 on a log scale
  --param n_steps=pow2:32..2048           powers of two
  --param gamma=logit:0.9..0.9995         more room near 1
  --param ent_coef=normal:0.01,0.003      mean and standard deviation; lognormal
  --param ent_coef=normal:0.01,0.005,0..  the same within bounds
  --param n_epochs=4,10,20                a choice; lists: hidden_dims=[[64, 64], [256, 256]]
  --param policy_lr.start=log:1e-5..1e-2  a part of a schedule
  --param 'tau=log:1e-3..0.1 if target_update_freq=1'      with a condition
  --param gamma                           the field's own range

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
--prune off|asha|hyperband|median
                       stop trials by their learning curves (default: off)
--final INT            how many of the best are trained again on fresh seeds, which choose one of
                       them (default: about 30 % of the trainings; 0: none)
--final-seeds N        further seeds that judge it against the config's own values (default: 5, or
                       4 in a small sweep)
--keep INT             keep the checkpoints of the best N trials only (default: of all)
--grid-points N        values of a range in a grid (default: 4)
--seed INT             seed of the suggestions and of the trials' seeds (default: 0)
--FIELD VALUE          a field of the config, for all trials: --max-env-steps 50_000
--resume SWEEP         continue a sweep; with more --trials, extend it
--dry-run              print what would be searched
--name NAME            name of the sweep (default: the config, with date and time); the same
                       command with the same name continues it
-q, --quiet            print only the result
--config-id NAME       internal: the target; repeatable
--env-kwargs --set --backend --resources --sbatch --trust --runs-dir --json

examples:
  gsolve sweep CartPole-v1:ppo --trials 40 --jobs 2
  gsolve sweep CartPole-v1:ppo --param policy_lr=log:1e-5..1e-2 --param n_epochs=4,10,20
  gsolve sweep config/sweeps/cartpole_ppo_bayes.yaml --trials 50
  gsolve sweep show @last
  gsolve sweep best @last --write configs/My.yaml:tuned
""")
@saves_at_sigterm
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
        plan = sweep.plan()
    else:
        from gymnasium_solver.experiments.search.search import n_trainings

        given, notes = plan_of(args)
        prepared = prepare(given, args.trust)
        plan, notes = prepared.plan, [*notes, *prepared.notes]
        if args.dry_run:
            lines = dump_yaml(plan.model_dump(mode="json", exclude_none=True)).rstrip("\n")
            n = (plan.trials or 0) * plan.seeds + n_trainings(plan)
            data = plan.model_dump(mode="json") | {"notes": notes, "trainings": n}
            out.tell(args, data, *(f"# {note}" for note in notes), lines)
            return 0
        sweep = folders.create_sweep(prepared, args.root())
    backend = many.pool_backend(args, [sweep.base_path])
    return run_and_show(args, sweep, plan.jobs, notes, backend)


def plan_of(args: Args) -> tuple[Plan, list[str]]:
    """The plan that a file and the flags describe, and notes about the file."""

    target = args.needed_config()
    data: dict[str, Any] = {}
    notes: list[str] = []
    if is_sweep_file(Path(target)):
        data, notes = read_sweep_file(Path(target))
        if not data.get("config"):
            raise UsageError(f"{target} names no config: gsolve sweep CONFIG --space {target}")
    else:
        data["config"] = target
    params, fields = dict(data.get("params") or {}), data.get("set") or {}
    if args.space is not None:
        from_file, more = read_sweep_file(Path(args.space))
        notes += more
        params = {**params, **(from_file.get("params") or {})}
        fields = {**(from_file.get("set") or {}), **fields}
    for text in args.param:
        param = read_param(text) if "=" in text else None
        # One without a range has an empty text: the field's own.
        params[text.strip() if param is None else param.name] = "" if param is None else str(param)
    data["params"] = params
    data["set"] = {**fields, **args.overrides()}
    _put(args, data, KEYS)
    return read_plan(data, target), notes


def _put(args: Args, data: dict[str, Any], flags: Iterable[str]) -> None:
    """Set the keys of a plan that these flags give."""

    for flag in flags:
        value = getattr(args, flag)
        if value is None:
            continue
        if flag == "target":
            value = parse_value(value)
            value = float(value) if isinstance(value, int) else value
        block, dot, inner = KEYS[flag].partition(".")
        data[block] = {**(data.get(block) or {}), inner: value} if dot else value


def resumed(args: Args) -> folders.Sweep:
    """The sweep to continue, with more trials or other jobs if given."""

    target, allowed = args.config_name(), {"resume", *MAY_CHANGE, *ALSO_AT_RESUME}
    names = {flag.removeprefix("--").replace("-", "_") for flag in args.own if flag[1] == "-"}
    other = [*args.fields, *(n for n in sorted(names - allowed) if getattr(args, n))]
    if target is not None or other:
        raise UsageError(
            f"{target or as_flag(other[0])}: a resumed sweep keeps what it searches; only "
            "--trials, --jobs, --final and --final-seeds may change. Start a new sweep for the rest"
        )
    sweep = folders.find_sweep(args.resume, args.root())
    sweep.check_trust(args.trust)
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


# --- while one runs


def run_and_show(
    args: Args, sweep: folders.Sweep, jobs: int, notes: Sequence[str], backend: "Backend | None"
) -> int:
    """Run a sweep and show it. Exit code 1 if no trial has a value."""
    from gymnasium_solver.experiments.search.run import search_of
    from gymnasium_solver.experiments.search.search import n_trainings

    console = out.make_console(stderr=args.json)
    screen = Screen(console, quiet=args.quiet)
    search = search_of(
        sweep, jobs=jobs, on_change=screen.changed, on_poll=screen.poll, backend=backend
    )
    plan = search.plan
    if not args.quiet:
        console.print(f"sweep {search.sweep.id}", style="bold")
        for note in notes:
            console.print(f"  note: {note}", style=out.GREY)
        for name, text in plan.params.items():
            console.print(f"  {name:<18} {text}")
        runs = n_trainings(plan)
        final = f", then a final of {runs} trainings on fresh seeds" if runs else ""
        console.print(
            f"  {plan.trials} trials of {search.budget:,} env steps, {plan.sampler}, "
            f"{plan.metric.goal} {plan.metric.name}, {search.pool.jobs} at a time{final}"
        )
    try:
        with screen:
            result = search.run()
    except KeyboardInterrupt:
        console.print(f"stopped; gsolve sweep --resume {sweep.id} continues it")
        raise
    if not out.told_json(args, result | {"id": sweep.id, "path": str(sweep.path)}):
        print_result(console, sweep, plan, result)
    return 0 if result["winner"] is not None else 1


class Screen(out.LiveView):
    """A sweep that runs: a live table, or a line for each trial that ended."""

    told: frozenset[int | str] = frozenset()

    def changed(self, search: "Search") -> None:
        """Without a live table: a line for each trial and each training of the final that ended."""
        if self.is_shown or self.quiet:
            return
        for trial in search.trials:
            if not trial.is_over or trial.number in self.told:
                continue
            self.told |= {trial.number}
            values = search.space.decode(trial.latents)
            what = "own values" if trial.attrs.get("own") else report.values_text(values)
            value = report.number_text(trial.value) or trial.attrs.get("reason", "")
            state = "" if trial.state == "complete" else f" {trial.state}"
            self.console.print(f"trial {trial.number}{state}: {value}  {what}")
        for task in search.pool.tasks:
            is_final = task.is_over and task.label.startswith("final/")
            if is_final and task.label not in self.told:
                self.told |= {task.label}
                self.console.print(f"{task.label}: {task.state} {task.reason}")

    def poll(self, search: "Search") -> None:
        self.draw(lambda: _picture(search))


def _picture(search: "Search") -> Group:
    """The state of a sweep, the running trials and the best ones."""

    plan, trials = search.plan, search.trials
    done = [task for task in search.pool.tasks if task.label.startswith("final/")]
    over = sum(trial.is_over for trial in trials)
    title = f"{search.phase}: {over} of {plan.trials} trials"
    if done:
        title += f", final {sum(task.is_over for task in done)} of {len(done)} trainings"
    table = out.table("best", plan.metric.name, *plan.params)
    for place, trial in enumerate(ranked(plan, trials)[:SHOWN_LIVE]):
        values = search.space.decode(trial.latents)
        table.add_row(
            f"{trial.number}{' own' if trial.attrs.get('own') else ''}",
            report.number_text(trial.value),
            *(report.value_text(values.get(name)) for name in plan.params),
            style=out.GREEN if place == 0 else None,
        )
    running = _running(search)
    return Group(Text(title, style="bold"), running, *([table] if table.row_count else []))


def _running(search: "Search") -> Table:

    table = out.table("running", "env steps", "best eval", "time")
    for task in search.pool.running():
        cells = ("starting", "", "")
        if is_run(task.folder):
            try:
                run = get_run(Run(task.folder))
                share = run.env_steps / max(search.budget, 1)
                score = report.number_text(run.best["score"]) if run.best else ""
                cells = (f"{run.env_steps:,} ({share:.0%})", score, out.duration(run.wall_s))
            except RunError:
                pass
        table.add_row(task.label, *cells, style=out.SKY)
    return table


@verb("""
sweep show: Show a sweep: its trials, best first, and its result.

[SWEEP]=@last    @last, an id or a part of one
--all            all trials, by number
--json --runs-dir
""")
def show(args: Args) -> None:

    found = folders.view(args.sweep, args.runs_dir)
    if out.told_json(args, found.to_dict):
        return
    out.show(f"{found.sweep.id}  {found.status}", style="bold")
    out.show(found.sweep.path, style=out.GREY)
    plan, rows = found.plan, found.rows()
    ordered = sorted(rows, key=lambda row: row["number"]) if args.all else rows[:SHOWN]
    table = out.table("trial", f">{plan.metric.name}", ">env steps", "state", *plan.params)
    for row in ordered:
        table.add_row(
            f"{row['number']}{' own' if row['own'] else ''}{' *' if row['on_front'] else ''}",
            report.number_text(row["value"]),
            f"{row['env_steps']:,.0f}" if row["env_steps"] else "",
            row["state"],
            *(report.value_text(row["params"].get(name)) for name in plan.params),
        )
    out.show(table)
    if len(rows) > len(ordered):
        out.show(f"{len(rows) - len(ordered)} more: --all", style=out.GREY)
    if shares := found.importances():
        texts = [
            f"{name} {one.value:.0%} [{one.low:.0%}, {one.high:.0%}]"
            for name, one in shares.items()
            if one.high >= 0.005
        ]
        out.show(f"importance, with what 90 % of repeats say: {', '.join(texts)}")
    if found.result:
        print_result(out.make_console(), found.sweep, plan, found.result)


def print_result(
    console: out.SafeConsole, sweep: folders.Sweep, plan: Plan, result: Mapping[str, Any]
) -> None:

    if result["winner"] is None:
        console.print("no trial has a value: gsolve sweep show --all tells why")
        return
    if result["final"]:
        heads = (f">{plan.metric.name}", ">test score", ">95 % interval", ">solved", ">env steps")
        table = out.table("final", *heads)
        for row in result["final"]:
            name, *cells = report.final_cells(row)
            table.add_row(f"trial {name}", *cells)
        console.print(table)
        if result.get("choice"):
            console.print(report.choice_text(result))
    what = "the config's own values" if result["is_own"] else report.values_text(result["params"])
    console.print(f"winner: trial {result['winner']}: {what}")
    if result.get("verdict"):
        console.print(f"verdict: {result['verdict']}")
    if fresh := result.get("fresh"):
        console.print(report.fresh_text(fresh, result["run"]))
    elif not result["final"]:
        console.print("no final: the score of a search is too good to be quoted")
    console.print(f"{sweep.report_path.with_suffix('.html')}")
    if not result["is_own"]:
        text = f"keep it: gsolve sweep best {sweep.id} --write FILE.yaml:NAME"
        console.print(text, style=out.GREY)


@verb("""
sweep best: Print the config of the winner, or write it as a variant of a config file.

[SWEEP]=@last             @last, an id or a part of one
--trial INT               this trial instead of the winner
--write FILE.yaml:NAME    add it to a file as a variant
--json --runs-dir

examples:
  gsolve sweep best @last
  gsolve sweep best @last --write configs/CartPole-v1.yaml:ppo_tuned
  gsolve train configs/CartPole-v1.yaml:ppo_tuned
""")
def best(args: Args) -> None:

    found = folders.view(args.sweep, args.runs_dir)
    number = found.winner if args.trial is None else args.trial
    lines, provenance = report.best_lines(found, number)
    if args.write:
        path, name = report.write_variant(args.write, found, lines, provenance)
        text = f"wrote {path}:{name}; gsolve train {path}:{name} trains it"
        data = {"file": str(path), "variant": name, "trial": number, "fields": lines}
        out.tell(args, data | {"provenance": provenance}, text)
        return
    text = "".join(f"# {line}\n" for line in provenance) + dump_yaml(lines)
    data = {"trial": number, "fields": lines, "provenance": provenance}
    if not out.told_json(args, data):
        print(text, end="")


@verb("""
sweep list: List the sweeps, newest first.

--json --runs-dir
""")
def list_sweeps(args: Args) -> None:

    found = [one.summary() for one in folders.views(args.runs_dir)]
    table = out.table("sweep", "config", "status", ">trials", "metric", ">best")
    for row in found:
        about = (row["id"], row["config"], row["status"], f"{row['done']}/{row['trials']}")
        table.add_row(*about, row["metric"], report.number_text(row["best"]))
    out.tell(args, found, table if found else "no sweeps; gsolve sweep CONFIG starts one")
