"""The table of all runs of an experiment: live on a terminal, one line per change elsewhere."""

import time
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gymnasium_solver.cli.tables import GREY, make_console, plain_table, status_text
from gymnasium_solver.experiments.experiment import OVER, Progress, Row, counts
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from gymnasium_solver.experiments.pool import Task

REFRESH_S = 1.0
PLAIN_S = 60.0  # without a terminal, at least one line a minute
BAR = 12


class ManyTable:
    """Shows an experiment while it runs."""

    def __init__(self, progress: Progress, quiet: bool = False) -> None:
        self.progress, self.quiet = progress, quiet
        self.console = make_console()
        self._told: set[str] = set()
        self._shown_s = self._looked_s = 0.0
        self._live = None
        if self.console.is_terminal and not quiet:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def on_change(self, task: "Task") -> None:
        """A task has started, ended, or is to be resumed."""
        if self._live is not None or self.quiet:
            return
        if task.is_over:
            self._tell_ends_of_stacks()
        row = next((r for r in self.progress.rows() if r.member.run == task.folder.name), None)
        words = {"waiting": "has ended early and is resumed", "running": "started"}
        text = words.get(task.state, task.state)
        if row is not None and row.run is not None:
            if task.state == "running":
                steps = row.run.env_steps
                text = f"runs from {steps:,} env steps" if steps else "runs"
            elif task.state == "finished":
                text = f"finished: {result_text(row)}"
        self.console.say(f"{task.label}: {text}" + (f": {task.reason}" if task.reason else ""))

    def on_poll(self) -> None:
        now_s = time.monotonic()
        if self._live is not None and now_s - self._shown_s >= REFRESH_S:
            self._live.update(self.renderable(), refresh=True)
            self._shown_s = now_s
        elif self._live is None and not self.quiet:
            if now_s - self._looked_s >= REFRESH_S:
                self._tell_ends_of_stacks()
                self._looked_s = now_s
            if now_s - self._shown_s >= PLAIN_S:
                if self._shown_s:
                    self.console.say(counts(self.progress.rows()))
                self._shown_s = now_s

    def _tell_ends_of_stacks(self) -> None:
        """One line for each run of a stack that has ended since the last time."""
        for row in self.progress.rows() if self.progress.experiment.stacks else ():
            if row.status in OVER and row.member.run not in self._told:
                self._told.add(row.member.run)
                text = f"finished: {result_text(row)}" if row.status == "finished" else row.status
                self.console.say(f"{row.member.group} seed {row.member.seed}: {text}")

    def renderable(self) -> Group:
        rows = self.progress.rows()
        fits = len(rows) + 4 <= self.console.height
        table = runs_table(rows) if fits else groups_table(rows)
        return Group(table, Text(counts(rows), style=GREY))


def runs_table(rows: list[Row]) -> Table:
    heads = ("=progress", ">env steps", ">validation", ">test", ">time")
    table = plain_table("=config", ">seed", "status", *heads)
    for row in rows:
        run = row.run
        if run is None:
            table.add_row(row.member.group, str(row.member.seed), "waiting", *[""] * 5)
            continue
        score = ScoreText(run.threshold, [])
        best = score(run.best["score"] if run.best else None)
        test = score(run.test["mean"] if run.test else None)
        about = (row.member.group, str(row.member.seed), status_text(run), bar(row.progress))
        table.add_row(*about, f"{run.env_steps:,}", best, test, f"{run.wall_s:,.0f} s")
    return table


def groups_table(rows: list[Row]) -> Table:
    """One line per config, for more runs than the terminal has lines."""
    table = plain_table("=config", "runs", ">progress", ">solved")
    for group in dict.fromkeys(row.member.group for row in rows):
        own = [row for row in rows if row.member.group == group]
        share = sum(row.progress or 0.0 for row in own) / len(own)
        n_solved = sum(bool(row.run and row.run.solved) for row in own)
        table.add_row(group, counts(own), bar(share), str(n_solved))
    return table


def bar(share: float | None) -> str:
    if share is None:
        return ""
    full = round(BAR * share)
    return f"{'█' * full}{'░' * (BAR - full)} {share:4.0%}"


def result_text(row: Row) -> str:
    run = row.run
    assert run is not None
    score = ScoreText(run.threshold, [])
    found = f"test {score(run.test['mean'])}" if run.test else "not tested"
    solved = " (solved)" if run.solved else ""
    return f"{found}{solved} after {run.env_steps:,} env steps, {run.wall_s:,.1f} s"
