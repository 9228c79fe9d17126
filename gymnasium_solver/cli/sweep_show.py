"""What sweeps show: while one runs a live table or, without a terminal, a line per trial; then its
result. And `gsolve sweep show|best|list`."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli.flags import Args, verb
from gymnasium_solver.cli.format import duration
from gymnasium_solver.cli.tables import (
    GREEN,
    GREY,
    SKY,
    SafeConsole,
    make_console,
    plain_table,
    print_json,
    print_table,
    tell,
)
from gymnasium_solver.errors import RunError

if TYPE_CHECKING:
    from gymnasium_solver.experiments.pool import Backend
    from gymnasium_solver.experiments.search.plan import Plan
    from gymnasium_solver.experiments.search.search import Search
    from gymnasium_solver.experiments.search.sweep_folder import Sweep, View

SHOWN = 15  # trials of `sweep show`
SHOWN_LIVE, REFRESH_S = 8, 0.5


@verb("""
sweep show: Show a sweep: its trials, best first, and its result.

[SWEEP]=@last    @last, an id or a part of one
--all            all trials, by number
--json --runs-dir
""")
def show(args: Args) -> None:
    from gymnasium_solver.experiments.search.sweep_folder import view

    found = view(args.sweep, args.runs_dir)
    tell(args, found.to_dict, lambda: _print_sweep(found, args.all))


def _print_sweep(found: "View", everything: bool) -> None:
    console = make_console()
    console.print(f"{found.sweep.id}  {found.status}", style="bold", markup=False)
    console.print(str(found.sweep.path), style=GREY, markup=False)
    _print_trials(console, found.plan, found.rows(), everything)
    if shares := found.importances():
        text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)
        console.print(f"importance: {text}", markup=False)
    if found.result:
        print_result(console, found.sweep, found.plan, found.result)


def _print_trials(
    console: SafeConsole, plan: "Plan", rows: Sequence[Mapping[str, Any]], everything: bool
) -> None:
    from gymnasium_solver.experiments.search.sweep_report import number_text, value_text

    ordered = sorted(rows, key=lambda row: row["number"]) if everything else rows[:SHOWN]
    table = plain_table("trial", f">{plan.metric.name}", ">env steps", "state", *plan.params)
    for row in ordered:
        steps = row["env_steps"]
        table.add_row(
            f"{row['number']}{' own' if row['own'] else ''}{' *' if row['on_front'] else ''}",
            number_text(row["value"]),
            f"{steps:,.0f}" if steps else "",
            row["state"],
            *(value_text(row["params"].get(name)) for name in plan.params),
        )
    print_table(console, table)
    if len(rows) > len(ordered):
        console.print(f"{len(rows) - len(ordered)} more: --all", style=GREY)


def print_result(
    console: SafeConsole, sweep: "Sweep", plan: "Plan", result: Mapping[str, Any]
) -> None:
    from gymnasium_solver.experiments.search import sweep_report as report

    if result["winner"] is None:
        console.print("no trial has a value: gsolve sweep show --all tells why", markup=False)
        return
    if result["final"]:
        heads = (f">{plan.metric.name}", ">test score", ">95 % interval", ">solved", ">env steps")
        table = plain_table("final", *heads)
        for row in result["final"]:
            name, *cells = report.final_cells(row)
            table.add_row(f"trial {name}", *cells)
        print_table(console, table)
        if result.get("choice"):
            console.print(report.choice_text(result), markup=False)
    what = "the config's own values" if result["is_own"] else report.values_text(result["params"])
    console.print(f"winner: trial {result['winner']}: {what}", markup=False)
    if result.get("verdict"):
        console.print(f"verdict: {result['verdict']}", markup=False)
    if fresh := result.get("fresh"):
        console.print(report.fresh_text(fresh, result["run"]), markup=False)
    elif not result["final"]:
        console.print("no final: the score of a search is too good to be quoted", markup=False)
    console.print(f"{sweep.report_path}", markup=False)
    if not result["is_own"]:
        text = f"keep it: gsolve sweep best {sweep.id} --write FILE.yaml:NAME"
        console.print(text, style=GREY, markup=False)


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
    from gymnasium_solver.config.yaml_file import dump_yaml
    from gymnasium_solver.experiments.search.sweep_folder import view
    from gymnasium_solver.experiments.search.sweep_report import best_lines, write_variant

    found = view(args.sweep, args.runs_dir)
    number = found.winner if args.trial is None else args.trial
    lines, provenance = best_lines(found, number)
    if args.write:
        path, name = write_variant(args.write, found, lines, provenance)
        print(f"wrote {path}:{name}; gsolve train {path}:{name} trains it")
        return
    text = "".join(f"# {line}\n" for line in provenance) + dump_yaml(lines)
    data = {"trial": number, "fields": lines, "provenance": provenance}
    tell(args, data, lambda: print(text, end=""))


@verb("""
sweep list: List the sweeps, newest first.

--json --runs-dir
""")
def list_sweeps(args: Args) -> None:
    from gymnasium_solver.experiments.search.sweep_folder import views

    found = [one.summary() for one in views(args.runs_dir)]
    nothing = "no sweeps; gsolve sweep CONFIG starts one"
    tell(args, found, (lambda: _print_sweeps(found)) if found else nothing)


def _print_sweeps(found: list[dict[str, Any]]) -> None:
    from gymnasium_solver.experiments.search.sweep_report import number_text

    table = plain_table("sweep", "config", "status", ">trials", "metric", ">best")
    for row in found:
        done = f"{row['done']}/{row['trials']}"
        about = (row["id"], row["config"], row["status"])
        table.add_row(*about, done, row["metric"], number_text(row["best"]))
    print_table(make_console(), table)


# --- while one runs


def run_and_show(
    args: Args, sweep: "Sweep", jobs: int, notes: Sequence[str], backend: "Backend | None"
) -> int:
    """Run a sweep and show it. Exit code 1 if no trial has a value."""
    from gymnasium_solver.experiments.search.run import search_of

    console = make_console(stderr=args.json)
    screen = _Screen(console, quiet=args.quiet)
    search = search_of(
        sweep, jobs=jobs, on_change=screen.changed, on_poll=screen.poll, backend=backend
    )
    if not args.quiet:
        _print_head(console, search, notes)
    try:
        with screen:
            result = search.run()
    except KeyboardInterrupt:
        console.print(f"stopped; gsolve sweep --resume {sweep.id} continues it", markup=False)
        raise
    if args.json:
        print_json(result | {"id": sweep.id, "path": str(sweep.path)})
    else:
        print_result(console, sweep, search.plan, result)
    return 0 if result["winner"] is not None else 1


def _print_head(console: SafeConsole, search: "Search", notes: Sequence[str]) -> None:
    from gymnasium_solver.experiments.search.search import n_trainings

    plan = search.plan
    console.print(f"sweep {search.sweep.id}", style="bold", markup=False)
    for note in notes:
        console.print(f"  note: {note}", style=GREY, markup=False)
    for name, text in plan.params.items():
        console.print(f"  {name:<18} {text}", markup=False)
    runs = n_trainings(plan)
    final = f", then a final of {runs} trainings on fresh seeds" if runs else ""
    console.print(
        f"  {plan.trials} trials of {search.budget:,} env steps, {plan.sampler}, "
        f"{plan.metric.goal} {plan.metric.name}, {search.pool.jobs} at a time{final}",
        markup=False,
    )


class _Screen:
    def __init__(self, console: SafeConsole, *, quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        self.live: Live | None = None
        self._told: set[int | str] = set()
        self._shown_s = 0.0

    def __enter__(self) -> "_Screen":
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def changed(self, search: "Search") -> None:
        """Without a live table: a line for each trial and each training of the final that ended."""
        from gymnasium_solver.experiments.search.sweep_report import number_text, values_text

        if self.live is not None or self.quiet:
            return
        for trial in search.trials:
            if not trial.is_over or trial.number in self._told:
                continue
            self._told.add(trial.number)
            values = search.space.decode(trial.latents)
            what = "own values" if trial.attrs.get("own") else values_text(values)
            value = number_text(trial.value) or trial.attrs.get("reason", "")
            state = "" if trial.state == "complete" else f" {trial.state}"
            self.console.print(f"trial {trial.number}{state}: {value}  {what}", markup=False)
        for task in search.pool.tasks:
            is_final = task.is_over and task.label.startswith("final/")
            if is_final and task.label not in self._told:
                self._told.add(task.label)
                self.console.print(f"{task.label}: {task.state} {task.reason}", markup=False)

    def poll(self, search: "Search") -> None:
        if self.live is None or time.monotonic() - self._shown_s < REFRESH_S:
            return
        self._shown_s = time.monotonic()
        self.live.update(_picture(search), refresh=True)


def _picture(search: "Search") -> Group:
    """The state of a sweep, the running trials and the best ones."""
    from gymnasium_solver.experiments.search.ranking import ranked
    from gymnasium_solver.experiments.search.sweep_report import number_text, value_text

    plan, trials = search.plan, search.trials
    done = [task for task in search.pool.tasks if task.label.startswith("final/")]
    over = sum(trial.is_over for trial in trials)
    title = f"{search.phase}: {over} of {plan.trials} trials"
    if done:
        title += f", final {sum(task.is_over for task in done)} of {len(done)} trainings"
    table = plain_table("best", plan.metric.name, *plan.params)
    for place, trial in enumerate(ranked(plan, trials)[:SHOWN_LIVE]):
        values = search.space.decode(trial.latents)
        table.add_row(
            f"{trial.number}{' own' if trial.attrs.get('own') else ''}",
            number_text(trial.value),
            *(value_text(values.get(name)) for name in plan.params),
            style=GREEN if place == 0 else None,
        )
    running = _running(search)
    return Group(Text(title, style="bold"), running, *([table] if table.row_count else []))


def _running(search: "Search") -> Table:
    from gymnasium_solver.experiments.search.sweep_report import number_text
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import Run, is_run

    table = plain_table("running", "env steps", "best eval", "time")
    for task in search.pool.running():
        cells = ("starting", "", "")
        if is_run(task.folder):
            try:
                run = get_run(Run(task.folder))
                share = run.env_steps / max(search.budget, 1)
                score = number_text(run.best["score"]) if run.best else ""
                cells = (f"{run.env_steps:,} ({share:.0%})", score, duration(run.wall_s))
            except RunError:
                pass
        table.add_row(task.label, *cells, style=SKY)
    return table
