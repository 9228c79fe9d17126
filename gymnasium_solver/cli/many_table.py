"""The table of all runs of an experiment: live on a terminal, one line per change elsewhere."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gymnasium_solver.cli.tables import make_console, plain_table, status_text
from gymnasium_solver.experiments.experiment import OVER, Progress, Row, counts
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from gymnasium_solver.experiments.pool import Task

REFRESH_S = 1.0
PLAIN_S = 60.0  # without a terminal, at least one line a minute
BAR = 12


class ManyTable:
    """Shows an experiment while it runs."""

    def __init__(self, progress: Progress, quiet: bool = False) -> None:
        self.progress, self.quiet = progress, quiet
        self.console = make_console()
        self._shown_at = 0.0
        self._told: set[str] = set()
        self._looked_at = 0.0
        self._live = None
        if self.console.is_terminal and not quiet:
            from rich.live import Live

            self._live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
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
        if task.state == "running" and row is not None and row.run is not None:
            text = f"runs from {row.run.env_steps:,} env steps" if row.run.env_steps else "runs"
        if task.state == "finished" and row is not None and row.run is not None:
            text = f"finished: {result_text(row)}"
        if task.reason:
            text += f": {task.reason}"
        self._print(f"{task.label}: {text}")

    def on_poll(self) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._shown_at >= REFRESH_S:
            self._live.update(self.renderable(), refresh=True)
            self._shown_at = now
        elif self._live is None and not self.quiet:
            if now - self._looked_at >= REFRESH_S:
                self._tell_ends_of_stacks()
                self._looked_at = now
            if now - self._shown_at >= PLAIN_S:
                if self._shown_at:
                    self._print(counts(self.progress.rows()))
                self._shown_at = now

    def _tell_ends_of_stacks(self) -> None:
        if self.progress.experiment.stacks:
            self._tell_ends()

    def _tell_ends(self) -> None:
        """One line for each run of a stack that has ended since the last time."""
        for row in self.progress.rows():
            if row.status in OVER and row.member.run not in self._told:
                self._told.add(row.member.run)
                text = f"finished: {result_text(row)}" if row.status == "finished" else row.status
                self._print(f"{row.member.group} seed {row.member.seed}: {text}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def renderable(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        rows = self.progress.rows()
        fits = len(rows) + 4 <= self.console.height
        table = runs_table(rows) if fits else groups_table(rows)
        return Group(table, Text(counts(rows), style="bright_black"))


def runs_table(rows: list[Row]) -> "Table":
    right = {"justify": "right", "no_wrap": True}
    table = plain_table(
        ("config", {"overflow": "ellipsis", "no_wrap": True}), ("seed", right), "status",
        ("progress", {"no_wrap": True}), ("env steps", right), ("validation", right),
        ("test", right), ("time", right),
    )  # fmt: skip
    for row in rows:
        run = row.run
        if run is None:
            table.add_row(row.member.group, str(row.member.seed), "waiting", *[""] * 5)
            continue
        score = ScoreText(run.threshold, [])
        best = score(run.best["score"]) if run.best else "-"
        test = score(run.test["mean"]) if run.test else "-"
        table.add_row(row.member.group, str(row.member.seed), status_text(run), bar(row.progress),
                      f"{run.env_steps:,}", best, test, f"{run.wall_s:,.0f} s")  # fmt: skip
    return table


def groups_table(rows: list[Row]) -> "Table":
    """One line per config, for more runs than the terminal has lines."""
    right = {"justify": "right", "no_wrap": True}
    table = plain_table(
        ("config", {"overflow": "ellipsis", "no_wrap": True}), "runs", ("progress", right),
        ("solved", right),
    )  # fmt: skip
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
