"""How far a long evaluation is: one line on the standard error, if that is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gymnasium_solver.cli import format as fmt

if TYPE_CHECKING:
    from gymnasium_solver.training.activity import Activity


class EvalLine:
    """A rich renderable of an evaluation under way."""

    def __init__(self, activity: "Activity") -> None:
        self.activity = activity

    def __rich__(self) -> Text:
        a = self.activity
        if a.phase == "starting":
            return Text("starting the environments", style="bright_black")
        done = f"{a.eval_episodes_done:,} / {a.eval_episodes:,} episodes"
        took = fmt.duration(a.clock_s() - a.phase_began_s)
        return Text(f"evaluating {done} · {a.eval_rows:,} steps · {took}", style="bright_black")


@contextmanager
def eval_progress(activity: "Activity", console: Console | None = None) -> Iterator[None]:
    """Show the line while the block runs, and remove it then."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    with Live(EvalLine(activity), console=console, transient=True, redirect_stdout=False):
        yield
