"""What `gsolve sweep` shows while it runs: a live table; without a terminal, a line per trial."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gymnasium_solver.cli.colours import GREEN, SKY
from gymnasium_solver.cli.format import duration
from gymnasium_solver.cli.tables import make_console, plain_table, print_json
from gymnasium_solver.experiments.search.final import n_trainings
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.ranking import ranked
from gymnasium_solver.experiments.search.run import search_of
from gymnasium_solver.experiments.search.search import Search
from gymnasium_solver.experiments.search.sweep_report import number_text, value_text, values_text

if TYPE_CHECKING:
    from rich.table import Table

    from gymnasium_solver.experiments.pool import Backend

BEST, REFRESH_S = 8, 0.5


def watch(
    sweep: Sweep,
    jobs: int,
    notes: Sequence[str],
    *,
    quiet: bool,
    as_json: bool,
    backend: "Backend | None" = None,
) -> int:
    """Run the sweep and show it. Exit code 1 if no trial has a value."""
    console = make_console(stderr=as_json)
    show = _Show(console, quiet=quiet)
    search = search_of(sweep, jobs=jobs, on_change=show.changed, on_poll=show.poll, backend=backend)
    if not quiet:
        show.header(search, notes)
    try:
        with show:
            result = search.run()
    except KeyboardInterrupt:
        console.print(f"stopped; gsolve sweep --resume {sweep.id} continues it", markup=False)
        raise
    if as_json:
        print_json(result | {"id": sweep.id, "path": str(sweep.path)})
    else:
        from gymnasium_solver.cli.sweep_read import print_result

        print_result(console, sweep, search.plan, result)
    return 0 if result["winner"] is not None else 1


class _Show:
    def __init__(self, console: Console, *, quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        self.told: set[int] = set()
        self.told_final: set[str] = set()
        self.live: Live | None = None
        self._last = 0.0

    def __enter__(self) -> "_Show":
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def header(self, search: Search, notes: Sequence[str]) -> None:
        plan, sweep = search.plan, search.sweep
        write = self.console.print
        write(f"sweep {sweep.id}", style="bold", markup=False)
        for note in notes:
            write(f"  note: {note}", style="bright_black", markup=False)
        for name, text in plan.params.items():
            write(f"  {name:<18} {text}", markup=False)
        runs = n_trainings(plan)
        final = f", then a final of {runs} trainings on fresh seeds" if runs else ""
        write(
            f"  {plan.trials} trials of {search.budget:,} env steps, {plan.sampler}, "
            f"{plan.metric.goal} {plan.metric.name}, {search.pool.jobs} at a time{final}",
            markup=False,
        )

    def changed(self, search: Search) -> None:
        """Without a live table: a line for each trial and each training of the final that ended."""
        if self.live is not None or self.quiet:
            return
        for trial in search.trials:
            if not trial.is_over or trial.number in self.told:
                continue
            self.told.add(trial.number)
            values = search.space.decode(trial.latents)
            what = "own values" if trial.attrs.get("own") else values_text(values)
            value = number_text(trial.value) or trial.attrs.get("reason", "")
            state = "" if trial.state == "complete" else f" {trial.state}"
            self.console.print(f"trial {trial.number}{state}: {value}  {what}", markup=False)
        for task in search.pool.tasks:
            is_final = task.is_over and task.label.startswith("final/")
            if is_final and task.label not in self.told_final:
                self.told_final.add(task.label)
                self.console.print(f"{task.label}: {task.state} {task.reason}", markup=False)

    def poll(self, search: Search) -> None:
        import time

        if self.live is None or time.monotonic() - self._last < REFRESH_S:
            return
        self._last = time.monotonic()
        self.live.update(_screen(search), refresh=True)


def _screen(search: Search) -> Group:
    plan, trials = search.plan, search.trials
    over = sum(trial.is_over for trial in trials)
    done = [task for task in search.pool.tasks if task.label.startswith("final/")]
    title = f"{search.phase}: {over} of {plan.trials} trials"
    if done:
        title += f", final {sum(task.is_over for task in done)} of {len(done)} trainings"
    parts: list[Table | Text] = [Text(title, style="bold"), _running(search)]
    best = ranked(plan, trials)[:BEST]
    if best:
        table = plain_table("best", plan.metric.name, *plan.params)
        for place, trial in enumerate(best):
            values = search.space.decode(trial.latents)
            own = " own" if trial.attrs.get("own") else ""
            table.add_row(
                f"{trial.number}{own}",
                number_text(trial.value),
                *(value_text(values.get(name)) for name in plan.params),
                style=GREEN if place == 0 else None,
            )
        parts.append(table)
    return Group(*parts)


def _running(search: Search) -> "Table":
    from gymnasium_solver.errors import RunError
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
